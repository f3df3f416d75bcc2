"""How PPO acts: its networks, the distributions that their outputs mean, and its policy."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Nest, Timestep
from ..networks import stateless_random as noise
from ..networks.action_bounds import ActionBounds
from ..networks.distributions import Categorical, DiagonalGaussian
from ..networks.network import Inputs, Network
from ..networks.normalization import RunningNormalizer
from .agent import Mode


class PpoNetworks(tf.Module):
    """The network that learns and acts, and what rewards are divided by."""

    def __init__(self, network: Network, spec: specs.EnvironmentSpec, normalize_rewards: bool):
        super().__init__()
        self.network = network
        self.action_spec = spec.action
        discrete = isinstance(spec.action, dm_specs.DiscreteArray)
        self.bounds = None if discrete else ActionBounds(spec.action, unbounded=True)
        """From Gaussian actions to the environment's; None where actions are discrete."""
        self.returns = RunningNormalizer(dm_specs.Array((), np.float32)) if normalize_rewards else None
        """Statistics of discounted returns."""

    @property
    def has_memory(self) -> bool:
        """Whether the network carries a state from one observation to the next."""
        return bool(tree.flatten(self.network.state_spec))

    def policy(self, outputs: Any) -> Categorical | DiagonalGaussian:
        """The distribution over actions that the network's outputs mean."""
        if self.bounds is None:
            return Categorical(outputs.logits)
        return DiagonalGaussian(outputs.mean, outputs.log_std)


class PpoExtras(NamedTuple):
    """What the behavior policy leaves in the record."""

    log_prob: Any
    """`[B]`, of the action."""
    gaussian: Any
    """`[B, D]`, the action before it was scaled and clipped to the environment's bounds; `()` for discrete actions."""
    discounted_return: Any
    """`[B]`, of the rewards of the episode up to the observation."""


class PpoState(NamedTuple):
    """The recurrent state of the policy in training; otherwise it is the network's alone."""

    network: Nest
    discounted_return: Any
    """`[B]`, of the rewards of the episode before the observation."""
    reset: Any
    """bool `[B]`, no transition leads to the observation: it follows the last one of an episode, or none at all."""


class PpoPolicy(tf.Module):
    """Samples from the policy, or takes the most likely action to evaluate."""

    def __init__(self, networks: PpoNetworks, discount: float, mode: Mode):
        super().__init__()
        self.network = networks.network
        self._distribution = networks.policy
        self._bounds = networks.bounds
        self._action_dtype = networks.action_spec.dtype
        self._discount = discount
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        network_state = self.network.initial_state(batch_size)
        if self._mode != "train":
            return network_state
        return PpoState(network_state, tf.zeros((batch_size,)), tf.ones((batch_size,), tf.bool))

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        if self._mode != "train":
            outputs, state = self.network.step(Inputs(timestep.observation), state, timestep.first)
            policy = self._distribution(outputs)
            chosen = policy.mode() if self._mode == "evaluate" else self._sample(policy, slot, seed)
            # The most likely of actions whose probabilities are NaN looks like any other: this shows it.
            return self._to_environment(chosen), {"log_prob": policy.log_prob(chosen)}, state
        outputs, network_state = self.network.step(Inputs(timestep.observation), state.network, timestep.first)
        policy = self._distribution(outputs)
        chosen = self._sample(policy, slot, seed)
        # The reward of a timestep belongs to the episode before it where episodes are reset in the same step.
        discounted_return = self._discount * state.discounted_return + timestep.reward
        extras = PpoExtras(
            log_prob=policy.log_prob(chosen),
            gaussian=() if self._bounds is None else chosen,
            discounted_return=discounted_return,
        )
        carried = tf.where(timestep.first | timestep.last, 0.0, discounted_return)
        return self._to_environment(chosen), extras, PpoState(network_state, carried, timestep.last)

    def _to_environment(self, chosen: tf.Tensor) -> tf.Tensor:
        return tf.cast(chosen, self._action_dtype) if self._bounds is None else self._bounds.to_environment(chosen)

    def _sample(self, policy: Categorical | DiagonalGaussian, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        if isinstance(policy, Categorical):
            return policy.sample(seed)
        assert self._bounds is not None
        return policy.sample(noise.standard_normal(seed, slot, (self._bounds.size,), policy.mean.dtype))
