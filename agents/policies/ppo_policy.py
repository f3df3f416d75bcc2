"""Networks and policy of PPO, A2C and A3C."""

from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest, Sample, Timestep
from ...networks.action_policy import action_policy
from ...networks.network import Network
from ..agent import Mode
from ..learning.network_inputs import ActingNetwork
from ..learning.on_policy import acting_network
from ..learning.reward_normalizer import RewardNormalizer


class PpoNetworks(tf.Module):
    """The network for policy and value, and the statistics that normalize rewards."""

    def __init__(self, network: Network, spec: specs.EnvironmentSpec, normalize_rewards: bool):
        super().__init__()
        self.network = network
        self.actions = action_policy(spec, network)
        """The policy over actions that the network parametrizes."""
        self.returns = RewardNormalizer() if normalize_rewards else None
        """Statistics of discounted returns."""

    def normalized(self, sample: Sample) -> Sample:
        """Returns a replica's share of a batch with normalized rewards, if they are, and updates their statistics."""
        return sample if self.returns is None else self.returns.normalized(sample)

    @property
    def has_memory(self) -> bool:
        """Whether the network carries a state from one observation to the next."""
        return bool(tree.flatten(self.network.state_spec))


class PpoExtras(NamedTuple):
    """Values that the behavior policy adds to the record."""

    log_prob: Any
    """`[B]`, log-probability of the action; it reveals weights that are not finite."""
    gaussian: Any
    """`[B, D]`, numbers of the action before scaling and clipping to the environment's bounds; `()` if it has none."""
    previous_reward: Any = ()
    """See `ActingNetwork.previous_reward`."""


class PpoPolicy(tf.Module):
    """Samples actions from the policy, or takes the most likely action in evaluation.

    Args:
      networks: what the learner trains.
      mode: what the policy is for.
      frame_stack: see `PpoSettings`.
    """

    def __init__(self, networks: PpoNetworks, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = networks.network
        self.acting = ActingNetwork(acting_network(networks.network, mode), frame_stack)
        self.actions = networks.actions
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self.acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self.acting.step(timestep, state)
        chosen, log_prob = self._choose(outputs, timestep.observation, slot, seed)
        action = self.actions.to_environment(chosen)
        if self._mode == "train":
            extras: Any = PpoExtras(
                log_prob=log_prob,
                gaussian=self.actions.numbers(chosen),
                previous_reward=self.acting.previous_reward(timestep),
            )
        else:
            # The mode of a distribution with NaN probabilities looks valid; its log-probability reveals it.
            extras = {"log_prob": log_prob}
        return action, extras, self.acting.carry(state, action)

    def _choose(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Returns chosen actions, as in `networks.action_policy`, and their log-probabilities `[B]`."""
        chosen = self.actions.choose(outputs, observation, slot, seed, best=self._mode == "evaluate")
        return chosen, self.actions.evaluate(outputs, observation, chosen).log_prob
