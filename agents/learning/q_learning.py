"""Shared parts of agents that learn action values from prioritized replay: networks, policy, learner and checks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ...data import Layout, Nest
from ...errors import CallboardError
from ...networks.actions.action_parts import ActionParts, Chosen
from ...networks.actions.legal_actions import legal_actions, mask_illegal
from ...networks.network import keep_spec
from ...networks.target_update import copy_weights, copy_weights_every
from ..agent import Mode
from ..losses.exploration import epsilon_greedy, epsilon_ladder
from ..losses.exploration_bonus import weight_ladder
from ..schedules import Schedule
from ..settings.optimizer_settings import OptimizerSettings
from .exploration_bonus import ExplorationBonus, further
from .gradient_learner import GradientLearner
from .gradient_step import LossOutput
from .network_inputs import ActingNetwork
from .optimizers import make_objective
from .reward_normalizer import RewardNormalizer
from .value_range import ValueRange

SMALLEST_PRIORITY = 1e-6
"""Added to every priority so that items with zero TD error can still be sampled."""


class QActions:
    """The actions of an environment as those of value networks: integers `[...]`, or `[..., K]` for K choices.

    Args:
      action: the spec of the action.
    """

    def __init__(self, action: Nest):
        self.composed = not isinstance(action, dm_specs.DiscreteArray)
        """Whether the action has several choices."""
        self._parts = ActionParts(action)

    def legal(self, observation: Nest) -> tf.Tensor | None:
        """Returns which values are legal, bool `[..., A]` or `[..., K, M]`; None if all are."""
        return self._parts.legal_choices(observation) if self.composed else legal_actions(observation)

    def of_values(self, chosen: tf.Tensor) -> Nest:
        """Returns the environment's actions."""
        return self._parts.to_environment(Chosen(chosen, ())) if self.composed else chosen

    def chosen(self, action: Nest) -> Any:
        """Returns the integers of the environment's actions."""
        return self._parts.choices(action) if self.composed else action

    def mean(self, x: Any) -> Any:
        """Returns the mean `[...]` over the choices of `[..., K]`, and `[...]` itself if there is one choice."""
        return tf.reduce_mean(x, axis=-1) if self.composed else x


class QNetworks(tf.Module):
    """The online network, which is trained and acts, and the target network, which evaluates its targets.

    Args:
      make_network: makes each of them.
      layout: the run's layout.
      epsilon: exploration rate of the first environment.
      returns: see the attribute.
      value_range: see the attribute.
      has_target: whether there is a target network; otherwise it is the online network.
    """

    def __init__(
        self,
        make_network: Callable[[], Any],
        layout: Layout,
        epsilon: float | Schedule,
        returns: RewardNormalizer | None = None,
        value_range: ValueRange | None = None,
        has_target: bool = True,
    ):
        super().__init__()
        self.online = make_network()
        self.target = make_network() if has_target else self.online
        if getattr(self.online, "normalizer", None) is not None:
            # Otherwise it would normalize by statistics that are as old as its weights, and at first by none.
            self.target.normalizer = self.online.normalizer
        keep_spec(self, layout.spec)
        self.actions = QActions(layout.spec.action)
        self.slots = layout.actors * layout.envs_per_actor
        """Number of environments of all actors, each with its own exploration rate."""
        first = epsilon.at(0, 1) if isinstance(epsilon, Schedule) else epsilon
        self.epsilon = tf.Variable(first, trainable=False, dtype=tf.float32, name="epsilon")
        """Exploration rate of the first environment, which actors fetch with the weights."""
        self.returns = returns
        """Statistics of discounted returns; None if rewards are not normalized."""
        self.value_range = value_range
        """Range of categorical distributions of values; None for values of other kinds."""

    @property
    def has_memory(self) -> bool:
        """Whether the network carries a state from one observation to the next."""
        return bool(tree.flatten(self.online.state_spec))

    def masked(self, q: Any, observation: Nest) -> tf.Tensor:
        """Returns action values, the lowest where the masks of observations forbid actions."""
        return mask_illegal(q, self.actions.legal(observation))


class EpsilonGreedyPolicy(tf.Module):
    """Has one rate of random actions per environment in training, and a common one in evaluation.

    Args:
      networks: have the exploration rate of the first environment.
      agent: has the other exploration rates of `ExplorationSettings`.
      mode: train or evaluate.
    """

    def __init__(self, networks: QNetworks, agent: Any, mode: Mode):
        super().__init__()
        self.epsilon = networks.epsilon
        self._slots = networks.slots
        self._agent = agent
        self._mode = mode

    def exploration_rates(self, slot: tf.Tensor) -> tf.Tensor | None:
        """Returns the rates of random actions `[B]`; None if there are none."""
        if self._mode == "train":
            return epsilon_ladder(slot, self._slots, self.epsilon, self._agent.epsilon_alpha)
        epsilon = self._agent.evaluation_epsilon
        return tf.fill(tf.shape(slot), epsilon) if epsilon else None


class QPolicy(EpsilonGreedyPolicy):
    """Epsilon-greedy policy of an agent with one action.

    Args:
      networks: the online network acts.
      agent: has the number of stacked frames, and exploration rates as in `EpsilonGreedyPolicy`.
      mode: train or evaluate.
    """

    def __init__(self, networks: QNetworks, agent: Any, mode: Mode):
        super().__init__(networks, agent, mode)
        self.network = networks.online
        self._acting = ActingNetwork(networks.online, agent.frame_stack)
        self._spec = networks.spec
        self._actions = networks.actions
        self._returns = networks.returns
        self._greedy = False
        """Whether there is other exploration than random actions."""

    def initial_state(self, batch_size: int) -> Nest:
        return self._acting.initial_state(batch_size)

    def choose(self, q: tf.Tensor, slot: tf.Tensor, seed: tf.Tensor, legal: tf.Tensor | None = None) -> tf.Tensor:
        """Returns actions as in `QActions` for their values `[B, A]` or `[B, K, M]`, and which are legal, likewise."""
        epsilon = None if self._greedy else self.exploration_rates(slot)
        dtype = tf.int32 if self._actions.composed else tf.as_dtype(self._spec.action.dtype)
        return epsilon_greedy(q, epsilon, slot, seed, dtype, legal)

    def bonus_weight(self, slot: tf.Tensor) -> Any:
        """Returns the weights of the bonus `[B]` that the network takes, 0 in evaluation; `()` if it takes none."""
        if not getattr(self.network, "takes_bonus_weight", False):
            return ()
        if self._mode != "train":
            return tf.zeros(tf.shape(slot))
        # What plays recorded episodes is beyond the slots of actors, and has the weight of the last.
        return tf.gather(weight_ladder(self._slots, self._agent.bonus.weight), tf.minimum(slot, self._slots - 1))

    def return_deviation(self, slot: tf.Tensor) -> Any:
        """Returns the deviation of returns `[B]`, for initial priorities; `()` if rewards are not normalized."""
        return () if self._returns is None else self._returns.deviations(tf.shape(slot)[0])


def make_q_learner(
    networks: QNetworks,
    loss: Callable[..., LossOutput],
    optimizer: OptimizerSettings,
    steps: int,
    strategy: tf.distribute.Strategy,
    target_update_period: int,
    updates_per_call: int,
    epsilon: Any,
    accumulate: int = 1,
    seed: int | None = None,
    rewards: RewardNormalizer | None = None,
    bonus: ExplorationBonus | None = None,
) -> GradientLearner:
    """Creates a learner that trains the online network and periodically copies it to the target network.

    Args:
      networks: the target network is initialized as a copy of the online network.
      loss: see `GradientLearner`, as for the arguments below.
      optimizer: settings of the optimizer.
      steps: learner steps of the run.
      strategy: runs the replicas.
      target_update_period: learner steps between updates of the target network.
      updates_per_call: updates that one call makes.
      epsilon: exploration rate for the actors, as `QNetworks.epsilon`; a scalar, or a variable that may change.
      accumulate: batches in an update.
      seed: the run's seed, for losses that sample.
      rewards: normalizes the rewards of every batch before its loss; None leaves them unchanged.
      bonus: the exploration bonus of the loss; None for none.
    """
    copy_weights(networks.online, networks.target)

    def update_target(steps: tf.Tensor) -> None:
        copy_weights_every(target_update_period, steps, networks.online, networks.target)
        if networks.value_range is not None:
            networks.value_range.settle(networks.online, networks.target)
        networks.epsilon.assign(epsilon)

    objective = make_objective("loss", networks.online.trainable_variables, optimizer, steps)
    objectives = [objective, *further(bonus)]
    learner = GradientLearner(loss, objectives, strategy, updates_per_call, update_target, seed, accumulate, rewards)
    learner.bonus = bonus  # Checkpoints contain what a learner refers to.
    return learner


def check_sequences(agent: Any, layout: Layout) -> None:
    """Checks the sizes of an agent that replays sequences, and that there is time for enough of them.

    Args:
      agent: has `burn_in`, `trace_length`, `period`, `n_step`, `replay` and `make_replay`.
      layout: the run's layout.

    Raises:
      CallboardError: the sizes do not fit.
    """
    for name in ("period", "n_step"):
        if getattr(agent, name) > agent.trace_length:
            raise CallboardError(
                f"agent.{name} must be at most agent.trace_length ({agent.trace_length}), not {getattr(agent, name)}"
            )
    agent.make_replay(layout).check()
    envs, length = layout.actors * layout.envs_per_actor, agent.burn_in + agent.trace_length
    sequences = max(0, envs * ((layout.max_timesteps // envs - 1 - length) // agent.period + 1))
    if sequences < agent.replay.min_size:
        raise CallboardError(
            f"learning would never begin: max_steps = {layout.max_steps} in {envs // layout.agents_per_env} "
            f"environments make {sequences} sequences of {length} transitions, and agent.replay.min_size is "
            f"{agent.replay.min_size}; raise max_steps, or lower agent.replay.min_size"
        )
