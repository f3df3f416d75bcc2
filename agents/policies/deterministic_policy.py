"""Shared parts of agents with a deterministic policy (TD3, D4PG): networks, acting, and checks."""

from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from ... import specs
from ...data import Nest, Timestep
from ...errors import CallboardError
from ...networks import stateless_random as noise
from ...networks.actor_critics.deterministic_actor_critic import DeterministicActorCritic
from ...networks.network_settings import NetworkSettings
from ...networks.random_streams import Stream
from ..agent import Mode
from ..learning.actor_critic_checks import check_networks
from ..learning.network_inputs import ActingNetwork
from ..learning.reward_normalizer import RewardNormalizer
from .action_checks import check_finite_bounds


class DeterministicNetworks(tf.Module):
    """Policy, critic and their targets, and whether learning has begun."""

    def __init__(
        self, actor_critic: DeterministicActorCritic, returns: RewardNormalizer | None = None, value_range: Any = None
    ):
        super().__init__()
        self.actor_critic = actor_critic
        self.returns = returns
        """Statistics of discounted returns; None if rewards are not normalized."""
        self.value_range = value_range
        """The `ValueRange` of a distributional critic; None without one."""
        self.learning = tf.Variable(False, trainable=False, name="learning")
        """bool, whether the learner has made its first step.  Until then actors take uniformly random actions."""


class DeterministicPolicy(tf.Module):
    """Adds Gaussian noise to the policy's actions in training (uniform ones until learning begins).

    Args:
      networks: the agent's networks.
      stddev: standard deviation of the noise, in units of half the range of an action.
      mode: without `train` there is no noise.
      frame_stack: number of frames in a stack.
    """

    def __init__(self, networks: DeterministicNetworks, stddev: float, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = networks.actor_critic.policy
        self._acting = ActingNetwork(self.network, frame_stack)
        self.learning = networks.learning
        self._bounds = networks.actor_critic.bounds
        self._stddev = stddev
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self._acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        unit, state = self._acting.step(timestep, state)
        if self._mode == "train":
            unit = self._explore(unit, slot, seed)
        return self._bounds.to_environment(unit), (), state

    def _explore(self, unit: tf.Tensor, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        shape, dtype = (self._bounds.size,), unit.dtype
        by_chance = 2 * noise.uniform(seed, Stream.UNIFORM_ACTION, slot, shape, dtype) - 1
        noisy = unit + self._stddev * noise.standard_normal(seed, Stream.ACTION_NOISE, slot, shape, dtype)
        return tf.where(self.learning, tf.clip_by_value(noisy, -1.0, 1.0), by_chance)


def check_bounded(name: str, spec: specs.EnvironmentSpec, network: NetworkSettings, frame_stack: int = 1) -> None:
    """Checks that an environment has one action of floats with finite bounds, and that a network fits it.

    Args:
      name: the agent's name, for the messages.
      spec: the environment's spec.
      network: the settings of its networks.
      frame_stack: number of frames in a stack.

    Raises:
      CallboardError: otherwise.
    """
    action = spec.action
    if not isinstance(action, dm_specs.BoundedArray) or not np.issubdtype(action.dtype, np.floating):
        raise CallboardError(
            f"{name} has a deterministic policy and needs one action of floats with bounds, but the environment's "
            f"action is {specs.describe(action)}"
        )
    check_finite_bounds(name, action)
    check_networks(name, spec, network, frame_stack)
