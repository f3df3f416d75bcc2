"""QMIX: monotonic mixing of the values of a team's members (Rashid et al. 2018, https://arxiv.org/abs/1803.11485).

VDN, value decomposition networks (Sunehag et al. 2018, https://arxiv.org/abs/1706.05296), is QMIX with another mixer.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf
import tree

from ..data import Layout, Record, Sample
from ..errors import CallboardError
from ..networks.actions.legal_actions import mask_illegal
from ..networks.factory import check_network, q_network
from ..networks.teams.mixing import make_mixer
from ..networks.teams.team import Team, check_team
from ..networks.teams.team_network import TeamInputs, TeamNetwork, network_specs
from ..replay import SequenceReplay
from ..specs import STATE, EnvironmentSpec, without_part
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .agent_names import agent_name
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.q_learning import QNetworks, check_sequences, make_q_learner
from .learning.reward_normalizer import make_reward_normalizer, returns_discount
from .losses.n_step import n_step_sequence, take_along_time
from .losses.q_learning import action_value, bootstrapped, double_q_value, td_loss
from .losses.replicas import global_mean, valid_mean
from .losses.rewards import learning_reward
from .policies.qmix_policy import QmixPolicy, TeamValues
from .settings.qmix_settings import QmixSettings, VdnSettings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class Qmix(QmixSettings, Agent):
    """The QMIX agent, which learns for all members of a team.

    A sequence holds `burn_in + trace_length` transitions of one environment and may cross the end of an episode: there
    the recurrent state is reset, and the transition to the next episode is not valid.  In the paper an item is an
    episode.
    """

    live = ("optimizer.learning_rate", "epsilon")
    watched = (Gradient(), Quantity.VALUES, Returns())

    @property
    def _length(self) -> int:
        return self.burn_in + self.trace_length

    def check(self, layout: Layout) -> None:
        check_team(agent_name(self), layout.spec, self.network.shared)
        if self.network.normalize_observations or self.network.torsos:
            raise CallboardError(
                f"{agent_name(self)} neither normalizes observations nor has torsos for parts of them: leave "
                "agent.network.normalize_observations and agent.network.torsos out"
            )
        for spec in network_specs(Team(layout.spec), self.network.shared, self.network.previous_actions):
            check_network(spec, self.network)
        check_sequences(self, layout)

    def make_networks(self, layout: Layout) -> QNetworks:
        team, settings = Team(layout.spec), self.network
        make_network = functools.partial(q_network, **settings.of_member)

        def make_values() -> TeamValues:
            network = TeamNetwork(team, make_network, settings.shared, settings.previous_actions)
            sizes = (len(team.members), team.state_size, self.mixing_size, self.hypernetwork_size)
            return TeamValues(team, network, make_mixer(self.mixer, *sizes))

        return QNetworks(make_values, layout, self.epsilon, make_reward_normalizer(self))

    def make_policy(self, networks: QNetworks, mode: Mode) -> QmixPolicy:
        return QmixPolicy(networks, self, mode)

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        return without_part(spec, STATE) if Team(spec).has_state else spec

    def make_replay(self, layout: Layout) -> SequenceReplay:
        return SequenceReplay(
            layout,
            self.replay,
            self.batch_size,
            self.updates_per_call * self.accumulate,
            length=self._length,
            period=self.period,
            returns_discount=returns_discount(self),
        )

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = self.replay.learner_steps(layout.max_timesteps / self.period, self.batch_size * self.accumulate)
        return make_q_learner(
            networks,
            functools.partial(self.loss, networks),
            self.optimizer,
            steps,
            strategy,
            self.target_update_period,
            self.updates_per_call,
            self.epsilon,
            self.accumulate,
            rewards=networks.returns,
        )

    def loss(self, networks: QNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's share of a batch's loss (equation (6)).

        Args:
          networks: the networks of `make_networks`.
          sample: sequences `[burn_in + trace_length + 1, B, ...]` with a `QmixState`, as `replay.SequenceFormat.read`
            returns them.
        """
        online, target, team = networks.online, networks.target, networks.online.team
        trace: Record = tree.map_structure(lambda leaf: leaf[self.burn_in :], sample.record)
        observation = trace.observation
        before = tree.map_structure(lambda leaf: leaf[:-1], observation)
        q_online, q_target = self._values(online, sample, training=True), self._values(target, sample)
        # Each member's best action is the team's, since the mixer is monotonic.
        best = double_q_value(mask_illegal(q_online, team.legal(observation)), q_target)
        total_target = target.total(best, observation)
        total = online.total(action_value(q_online[:-1], team.split(trace.action)), before)
        valid_t = valid_transitions(trace.first, trace.last, trace.discount)
        reward_t = learning_reward(tf.cast(trace.reward, total.dtype), self.reward_scale, self.reward_clip)
        steps = n_step_sequence(reward_t, self.discount * trace.discount, valid_t, self.n_step)
        target_t = bootstrapped(steps, take_along_time(total_target, steps.index))
        delta_t = tf.where(valid_t, target_t - total, tf.zeros_like(total))

        mean = global_mean(self.batch_size * self.trace_length, total.dtype)
        loss = self.trace_length * (mean(td_loss(delta_t)) + online.network.regularization_loss())
        shown = valid_mean(valid_t, total.dtype)
        metrics = {"td_error": shown(tf.abs(delta_t)), "value": shown(total), "valid_fraction": mean(valid_t)}
        return LossOutput(loss, metrics)

    def _values(self, values: TeamValues, sample: Sample, training: bool = False) -> tf.Tensor:
        """Returns the values `[trace_length + 1, B, M, A]` after the burn-in, through which no gradients flow."""
        record, state, burn_in, team = sample.record, sample.state, self.burn_in, values.team
        present = team.present(record.observation)
        previous_action = tf.concat([state.previous_action[tf.newaxis], team.split(record.action)], axis=0)
        previous_present = tf.concat([state.previous_present[tf.newaxis], present[:-1]], axis=0)
        begins = record.first[..., tf.newaxis] | ~previous_present
        inputs, core = TeamInputs(record.observation, previous_action, begins), state.core
        if burn_in:
            _, core = values.network.unroll(_rows(inputs, slice(burn_in)), core)
            core = tree.map_structure(tf.stop_gradient, core)
        q, _ = values.network.unroll(_rows(inputs, slice(burn_in, None)), core, training)
        return q


def _rows(inputs: TeamInputs, rows: slice) -> Any:
    return tree.map_structure(lambda leaf: leaf[rows], inputs)


@dataclasses.dataclass(frozen=True)
class Vdn(VdnSettings, Qmix):
    """The VDN agent: QMIX with the sum of the members' values (Sunehag et al. 2018)."""
