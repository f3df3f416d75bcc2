"""Tasks of the DeepMind Control Suite (Tassa et al. 2018) by name (`dm_control:walker-walk`)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import dm_env
import numpy as np
from annotated_types import Interval

from ...settings.setting_types import NonNegativeInt, PositiveFloat, PositiveInt
from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.options import read_options
from ..batches.user_errors import needs_package, unknown_environment
from .dm_env_adapter import DmEnvBatch

_PREFIX = "dm_control:"
_SHOWN_SIZE = 240
"""Height and width in pixels of rendered pictures."""


@dataclasses.dataclass(frozen=True)
class DmControlOptions:
    """Options of tasks of the Control Suite; the defaults are the suite's.

    Attributes:
      time_limit: seconds of simulated time after which an episode is truncated; None for the task's own limit, which is
        1000 steps of the suite's usual tasks.
      action_repeat: steps of the task for which an action is repeated; their rewards are added.
      pixels: whether observations are pictures, uint8 `[size, size, 3]`, instead of the state of the simulation.
      size: height and width of these pictures.
      camera: index of the camera of pictures.
    """

    time_limit: PositiveFloat | None = None
    action_repeat: PositiveInt = 1
    pixels: bool = False
    size: Annotated[int, Interval(ge=8, le=2048)] = 84
    camera: NonNegativeInt = 0


def make_dm_control(name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of a task of the Control Suite.

    Observations are dictionaries of float32 arrays, or pictures; actions are in the task's bounds.  The end of an
    episode is a time limit in nearly all tasks, and then no termination.

    Args:
      name: `<domain>-<task>`, such as `walker-walk`.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: fields of `DmControlOptions`.

    Raises:
      CallboardError: if the task or an option is unknown, or dm_control is not installed.
    """
    settings = check_dm_control(name, options)
    check_seeds(batch_size, seeds)
    return DmEnvBatch([SuiteTask(*_split(name), seed, settings) for seed in seeds])


def check_dm_control(name: str, options: Mapping[str, Any]) -> DmControlOptions:
    """Checks a task and options without making an environment; returns the options.

    Raises:
      CallboardError: if the task or an option is unknown, or dm_control is not installed.
    """
    full = _PREFIX + name
    with needs_package(full, "dm-control", "callboard[dm-control]"):
        known = dm_control_tasks()
    if name not in known:
        raise unknown_environment(full, known, "give a domain and a task, such as 'dm_control:walker-walk'", _PREFIX)
    return read_options(full, options, DmControlOptions)


def dm_control_tasks() -> list[str]:
    """Returns the names of all tasks, such as `walker-walk`.

    Raises:
      ImportError: dm_control is not installed.
    """
    from dm_control import suite

    return ["-".join(task) for task in suite.ALL_TASKS]


def _split(name: str) -> tuple[str, str]:
    # Names of domains and tasks have underscores, but no hyphen.
    domain, _, task = name.partition("-")
    return domain, task


class SuiteTask(dm_env.Environment):
    """A task of the Control Suite with repeated actions, and pictures as observations if they are wanted."""

    def __init__(self, domain: str, task: str, seed: int, options: DmControlOptions):
        """Loads the task.

        Args:
          domain: name of the domain.
          task: name of the task.
          seed: seed of the task's random states.
          options: options of the task.
        """
        from dm_control import suite

        arguments: dict[str, Any] = {"random": int(seed) % 2**32}
        if options.time_limit is not None:
            arguments["time_limit"] = options.time_limit
        self._environment: Any = suite.load(domain, task, task_kwargs=arguments)
        self._repeat = options.action_repeat
        self._camera = options.camera
        if options.pixels:
            from dm_control.suite.wrappers import pixels

            view = {"height": options.size, "width": options.size, "camera_id": options.camera}
            self._environment = pixels.Wrapper(self._environment, render_kwargs=view)
        self._pixels = options.pixels

    def observation_spec(self) -> Any:
        spec = self._environment.observation_spec()
        # The suite's spec of pictures has no bounds.
        return spec["pixels"].replace(name="pixels") if self._pixels else spec

    def action_spec(self) -> Any:
        return self._environment.action_spec()

    def reset(self) -> dm_env.TimeStep:
        return self._seen(self._environment.reset(), None)

    def step(self, action: Any) -> dm_env.TimeStep:
        reward = 0.0
        for _ in range(self._repeat):
            timestep = self._environment.step(action)
            reward += timestep.reward or 0.0
            if timestep.last():
                break
        return self._seen(timestep, reward)

    def control_timestep(self) -> float:
        """Simulated seconds between two timesteps."""
        return self._environment.control_timestep() * self._repeat

    def render(self) -> np.ndarray:
        """Renders the simulation, uint8 `[240, 240, 3]`."""
        return self._environment.physics.render(_SHOWN_SIZE, _SHOWN_SIZE, camera_id=self._camera)

    def close(self) -> None:
        self._environment.close()

    def _seen(self, timestep: dm_env.TimeStep, reward: float | None) -> dm_env.TimeStep:
        observation = timestep.observation["pixels"] if self._pixels else timestep.observation
        return timestep._replace(observation=observation, reward=reward)
