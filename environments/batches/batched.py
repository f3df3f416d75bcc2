"""The batched environment interface that actors and evaluators use."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from .infos import Infos
from .tasks import Task, no_task


class BatchedEnvironment(abc.ABC):
    """`B` environments that are reset and stepped together.

    If the underlying library returns the final observation of an episode, the timestep that contains it is `last`, the
    next action is ignored, and the next timestep is `first` with reward 0 and discount 1.  If the library resets in the
    same step and the final observation is lost, the timestep is `first`, with the reward and discount of the ended
    episode, and never `last`.  The discount is 0 only where an episode *terminated*, never at a time limit.

    Every timestep has new arrays, which later steps do not modify.  Call `reset` before the first `step`.
    """

    infos: Infos | None = None
    """The infos beside the newest timestep; None unless `keep_infos` was called."""

    has_own_seeds: bool = False
    """Whether the first episode of each environment depends on its own seed alone, not on those of the others."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvironmentSpec:
        """Observation and action specs of one environment, without the batch axis."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """The number of environments, `B`."""

    @property
    def environments(self) -> Sequence[Any]:
        """The library's own environments, in order; only this batch if they are not separate objects."""
        return (self,)

    @property
    def goal_rewards(self) -> Any:
        """The rewards of transitions for other goals, a `goal_rewards.GoalRewards`; None if there are none."""
        return None

    @abc.abstractmethod
    def reset(self) -> Timestep:
        """Begins a new episode in every environment.

        The first reset uses the seeds passed to the constructor; later resets continue from that random state.

        Returns:
          The first timestep: reward 0, discount 1, `first` everywhere.
        """

    @abc.abstractmethod
    def step(self, actions: Nest) -> Timestep:
        """Takes one action in every environment; one whose timestep was `last` begins its next episode instead.

        Args:
          actions: array `[B, ...]`, or a nest of them, as in `spec.action`.  It is not modified.

        Returns:
          The next timestep.
        """

    def keep_infos(self) -> None:
        """Makes every later `reset` and `step` store the library's infos in `infos`.

        Raises:
          CallboardError: these environments have no infos.
        """
        raise CallboardError(
            f"{type(self).__name__} has no infos, from which episode_metrics and record_infos are taken: override "
            "'keep_infos' and set 'infos', or leave them out"
        )

    def set_task(self, task: Task) -> None:
        """Sets the task that every environment takes at its next reset, also inside `step`; None for its own task.

        Args:
          task: plain data; what it means is the environments' own.

        Raises:
          CallboardError: these environments have no tasks, or not this one.
        """
        raise no_task(type(self).__name__, "override 'set_task', or leave the task and the curriculum out")

    @property
    def frames_per_second(self) -> float | None:
        """Frame rate at which rendered timesteps play in real time; None if the environment does not define one."""
        return None

    @abc.abstractmethod
    def render(self) -> np.ndarray:
        """Renders environment 0 as an image, uint8 `[H, W, 3]`.

        Raises:
          CallboardError: if the environment cannot be rendered.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Releases the environments' resources.  A second call does nothing."""


class EnvironmentWrapper(BatchedEnvironment):
    """Forwards all calls to another environment; subclasses override what they change.

    Args:
      environment: the other environment.
    """

    def __init__(self, environment: BatchedEnvironment):
        self._environment = environment

    @property
    def spec(self) -> EnvironmentSpec:
        return self._environment.spec

    @property
    def batch_size(self) -> int:
        return self._environment.batch_size

    @property
    def environments(self) -> Sequence[Any]:
        return self._environment.environments

    @property
    def goal_rewards(self) -> Any:
        return self._environment.goal_rewards

    def reset(self) -> Timestep:
        return self._environment.reset()

    def step(self, actions: Nest) -> Timestep:
        return self._environment.step(actions)

    @property
    def infos(self) -> Infos | None:  # type: ignore[override]
        return self._environment.infos

    @property
    def has_own_seeds(self) -> bool:  # type: ignore[override]
        return self._environment.has_own_seeds

    def keep_infos(self) -> None:
        self._environment.keep_infos()

    def set_task(self, task: Task) -> None:
        self._environment.set_task(task)

    @property
    def frames_per_second(self) -> float | None:
        return self._environment.frames_per_second

    def render(self) -> np.ndarray:
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()


def first_timestep(observation: Nest, batch_size: int) -> Timestep:
    """Makes the timestep that follows a reset of the whole batch, from observations `[B, ...]`."""
    return Timestep(
        observation=observation,
        reward=np.zeros(batch_size, np.float32),
        discount=np.ones(batch_size, np.float32),
        first=np.ones(batch_size, np.bool_),
        last=np.zeros(batch_size, np.bool_),
    )


def discrete_actions(actions: Any, batch_size: int, num_values: int) -> np.ndarray:
    """Checks and copies discrete actions for libraries that do not check them and would hang or wrap around.

    Returns:
      A copy of `actions`, int32 `[B]`.

    Raises:
      ValueError: if `actions` are not B numbers from 0 to `num_values` - 1.
    """
    array = np.array(actions, np.int32)
    if array.shape != (batch_size,):
        raise ValueError(f"actions of shape {array.shape}, expected {(batch_size,)}")
    if array.min() < 0 or array.max() >= num_values:
        raise ValueError(f"actions from {array.min()} to {array.max()}, expected 0 to {num_values - 1}")
    return array


def picture(frame: Any, name: str) -> np.ndarray:
    """Copies a rendered `frame`, uint8 `[H, W, 3]`; raises `CallboardError` if it is anything else."""
    array = np.array(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3:
        raise CallboardError(f"{name} renders {array.dtype}{array.shape}, not a picture of uint8 [height, width, 3]")
    return array


def check_seeds(batch_size: int, seeds: Any) -> None:
    """Raises `ValueError` unless there is at least one environment and exactly one seed per environment."""
    if batch_size < 1 or len(seeds) != batch_size:
        raise ValueError(f"{batch_size} environments need as many seeds, and at least one; got {len(seeds)} seeds")
