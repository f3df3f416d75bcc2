"""PPO's networks and policy."""

from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest, Timestep
from ...networks.action_policy import action_policy
from ...networks.network import Network
from ..agent import Mode
from ..learning.on_policy import acting_network
from ..learning.reward_normalizer import RewardNormalizer
from .network_inputs import ActingNetwork


class PpoNetworks(tf.Module):
    """The network for policy and value, and the statistics that normalize rewards."""

    def __init__(self, network: Network, spec: specs.EnvironmentSpec, normalize_rewards: bool):
        super().__init__()
        self.network = network
        self.actions = action_policy(spec, network)
        """The policy over actions that the network parametrizes."""
        self.returns = RewardNormalizer() if normalize_rewards else None
        """Statistics of discounted returns."""

    @property
    def has_memory(self) -> bool:
        """Whether the network carries a state from one observation to the next."""
        return bool(tree.flatten(self.network.state_spec))


class PpoExtras(NamedTuple):
    """What the behavior policy adds to the record."""

    log_prob: Any
    """`[B]`, log-probability of the action."""
    gaussian: Any
    """`[B, D]`, numbers of the action before scaling and clipping to the environment's bounds; `()` if it has none."""
    discounted_return: Any
    """`[B]`, discounted sum of the episode's rewards up to the observation."""
    previous_reward: Any = ()
    """See `ActingNetwork.previous_reward`."""


class PpoState(NamedTuple):
    """Recurrent state of the policy in training; in other modes it is the `ActingNetwork`'s state alone."""

    network: Nest
    discounted_return: Any
    """`[B]`, discounted sum of the episode's rewards before the observation."""
    reset: Any
    """bool `[B]`, True if no transition leads to the observation: it follows the end of an episode, or is the first."""


class PpoPolicy(tf.Module):
    """Samples actions from the policy, or takes the most likely action in evaluation.

    Args:
      networks: what the learner trains.
      discount: γ of the discounted returns that are recorded.
      mode: what the policy is for.
      frame_stack: see `PpoSettings`.
    """

    def __init__(self, networks: PpoNetworks, discount: float, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = networks.network
        self._acting = ActingNetwork(acting_network(networks.network, mode), frame_stack)
        self._actions = networks.actions
        self._discount = discount
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        network_state = self._acting.initial_state(batch_size)
        if self._mode != "train":
            return network_state
        return PpoState(network_state, tf.zeros((batch_size,)), tf.ones((batch_size,), tf.bool))

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        if self._mode != "train":
            outputs, state = self._acting.step(timestep, state)
            chosen, log_prob = self._choose(outputs, timestep.observation, slot, seed)
            # The mode of a distribution with NaN probabilities looks valid; its log-probability reveals it.
            action = self._actions.to_environment(chosen)
            return action, {"log_prob": log_prob}, self._acting.carry(state, action)
        outputs, network_state = self._acting.step(timestep, state.network)
        chosen, log_prob = self._choose(outputs, timestep.observation, slot, seed)
        # Where episodes are reset in the same step, the reward of the first timestep belongs to the previous episode.
        discounted_return = self._discount * state.discounted_return + timestep.reward
        extras = PpoExtras(
            log_prob=log_prob,
            gaussian=self._actions.numbers(chosen),
            discounted_return=discounted_return,
            previous_reward=self._acting.previous_reward(timestep),
        )
        action = self._actions.to_environment(chosen)
        network_state = self._acting.carry(network_state, action)
        carried = tf.where(timestep.first | timestep.last, 0.0, discounted_return)
        return action, extras, PpoState(network_state, carried, timestep.last)

    def _choose(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Returns chosen actions, as in `networks.action_policy`, and their log-probabilities `[B]`."""
        chosen = self._actions.choose(outputs, observation, slot, seed, best=self._mode == "evaluate")
        return chosen, self._actions.evaluate(outputs, observation, chosen).log_prob
