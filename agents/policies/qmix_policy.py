"""QMIX's networks, and its policy, which acts for every member of a team by the member's own observations."""

from typing import Any, NamedTuple

import tensorflow as tf

from ...data import Nest, Timestep
from ...networks.actions.legal_actions import mask_illegal
from ...networks.network import merge_time
from ...networks.teams.mixing import MonotonicMixer, SumMixer
from ...networks.teams.team import Team
from ...networks.teams.team_network import TeamInputs, TeamNetwork
from ..agent import Mode
from ..learning.q_learning import EpsilonGreedyPolicy, QNetworks
from ..losses.exploration import epsilon_greedy
from ..losses.q_learning import action_value


class TeamValues(tf.Module):
    """The values of the members' actions, and the mixer that makes them the value of the team's."""

    def __init__(self, team: Team, network: TeamNetwork, mixer: MonotonicMixer | SumMixer):
        super().__init__()
        self.team = team
        self.network = network
        self.mixer = mixer

    def total(self, values: tf.Tensor, observation: Nest) -> tf.Tensor:
        """Returns the value `[T, B]` of a joint action; that of an absent member is 0.

        Args:
          values: `[T, B, M]`, of the members' actions.
          observation: leaves `[T, B, ...]`.
        """
        present = self.team.present(observation)
        values = tf.where(present, values, tf.zeros_like(values))
        merged = tf.nest.map_structure(merge_time, observation)
        total = self.mixer(merge_time(values), self.team.state(merged, values.dtype))
        return tf.reshape(total, tf.shape(values)[:2])

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains."""
        return (*self.network.trainable_variables, *self.mixer.trainable_variables)


class QmixState(NamedTuple):
    """Recurrent state of the policy."""

    core: Nest
    """State of the members' cores, leaves `[B, M, ...]`."""
    previous_action: Any
    """int32 `[B, M]`, the members' actions that led to the observation."""
    previous_present: Any
    """bool `[B, M]`, whether the members took part in the timestep before."""


class QmixExtras(NamedTuple):
    """Values that the behavior policy adds to the record; replay does not store them."""

    value: Any
    """`[B, M]`, Q(x, a) of the members' actions; it reveals weights that are not finite."""


class QmixPolicy(EpsilonGreedyPolicy):
    """Acts epsilon-greedily for each member by its own observations alone, without the mixer and the state."""

    def __init__(self, networks: QNetworks, agent: Any, mode: Mode):
        super().__init__(networks, agent, mode)
        self.network: TeamNetwork = networks.online.network
        self._team: Team = networks.online.team

    def initial_state(self, batch_size: int) -> QmixState:
        shape = (batch_size, len(self._team.members))
        return QmixState(self.network.initial_state(batch_size), tf.zeros(shape, tf.int32), tf.zeros(shape, tf.bool))

    def __call__(
        self, timestep: Timestep, state: QmixState, slot: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Nest, Nest, Nest]:
        begins = timestep.first[:, tf.newaxis] | ~state.previous_present
        q, core = self.network.step(TeamInputs(timestep.observation, state.previous_action, begins), state.core)
        legal = self._team.legal(timestep.observation)
        q = mask_illegal(q, legal)
        members, actions = len(self._team.members), self._team.num_actions
        # A member explores by a slot of its own.
        slots = slot[:, tf.newaxis] * members + tf.range(members, dtype=slot.dtype)
        rates = self.exploration_rates(slot)
        chosen = epsilon_greedy(
            tf.reshape(q, (-1, actions)),
            None if rates is None else tf.repeat(rates, members),
            tf.reshape(slots, (-1,)),
            seed,
            tf.int64,
            legal=tf.reshape(legal, (-1, actions)),
        )
        action = tf.reshape(chosen, (-1, members))
        after = QmixState(core, tf.cast(action, tf.int32), self._team.present(timestep.observation))
        return self._team.joined(action), QmixExtras(action_value(q, action)), after
