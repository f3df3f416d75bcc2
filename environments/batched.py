"""The one interface through which actors see environments: a batch of them, stepped together."""

import abc
from typing import Any

import numpy as np

from ..data import CallboardError, Nest, Timestep
from ..specs import EnvironmentSpec


class BatchedEnvironment(abc.ABC):
    """`B` environments that are reset and stepped together.

    Where the underlying library shows the final observation of an episode, a timestep with `last` shows it, the action
    that follows is ignored, and the next timestep is `first` with reward 0 and discount 1, since nothing happened.
    Where the library resets in the same step and the final observation is lost, the timestep is `first` with the
    reward and discount of the ended episode, and never `last`.  The discount is 0 only where an episode *terminated*,
    never at a time limit.

    The arrays of a timestep are its own: no later step writes into them.  Call `reset` before the first `step`.
    """

    @property
    @abc.abstractmethod
    def spec(self) -> EnvironmentSpec:
        """What one environment (not the batch) takes and gives."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """The number of environments, `B`."""

    @abc.abstractmethod
    def reset(self) -> Timestep:
        """Begins an episode in every environment.

        The first reset uses the seeds that the batch was made with; later ones go on from there.

        Returns:
            The first timestep: reward 0, discount 1, `first` everywhere.
        """

    @abc.abstractmethod
    def step(self, actions: Nest) -> Timestep:
        """Takes one action in every environment, or begins its next episode after a `last` timestep.

        Args:
            actions: array `[B, ...]`, or a nest of them, as `spec.action` says.  It is not changed.

        Returns:
            The timestep that follows.
        """

    @property
    def frames_per_second(self) -> float | None:
        """The rate at which pictures of successive timesteps show real time; None where the environment has none."""
        return None

    @abc.abstractmethod
    def render(self) -> np.ndarray:
        """A picture of environment 0, uint8 `[H, W, 3]`.

        Raises:
            CallboardError: the environment has no picture to show.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the environments hold.  A second call does nothing."""


def first_timestep(observation: Nest, batch_size: int) -> Timestep:
    """The timestep after a reset of the whole batch, from observations `[B, ...]`."""
    return Timestep(
        observation=observation,
        reward=np.zeros(batch_size, np.float32),
        discount=np.ones(batch_size, np.float32),
        first=np.ones(batch_size, np.bool_),
        last=np.zeros(batch_size, np.bool_),
    )


def discrete_actions(actions: Any, batch_size: int, num_values: int) -> np.ndarray:
    """A copy of `actions` as int32 `[B]`; raises `ValueError` unless they are B numbers from 0 to `num_values` - 1.

    For libraries that do not look at what they are given: one hangs, the next one wraps around.
    """
    array = np.array(actions, np.int32)
    if array.shape != (batch_size,):
        raise ValueError(f"actions of shape {array.shape}, expected {(batch_size,)}")
    if array.min() < 0 or array.max() >= num_values:
        raise ValueError(f"actions from {array.min()} to {array.max()}, expected 0 to {num_values - 1}")
    return array


def picture(frame: Any, name: str) -> np.ndarray:
    """A copy of a rendered `frame`, uint8 `[H, W, 3]`; raises `CallboardError` where it is something else."""
    array = np.array(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3:
        raise CallboardError(f"{name} renders {array.dtype}{array.shape}, not a picture of uint8 [height, width, 3]")
    return array


def check_seeds(batch_size: int, seeds: Any) -> None:
    """Raises `ValueError` unless there is one seed to each of at least one environment."""
    if batch_size < 1 or len(seeds) != batch_size:
        raise ValueError(f"{batch_size} environments need as many seeds, and at least one; got {len(seeds)} seeds")
