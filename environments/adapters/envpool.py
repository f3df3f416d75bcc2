"""Environments of EnvPool (Weng et al. 2022) by name (`envpool:Pong-v5`), stepped by its threads as one batch."""

import contextlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ...errors import CallboardError
from ...settings.setting_types import converted
from ..batches.batched import BatchedEnvironment, check_seeds
from ..batches.tasks import Task, no_task
from ..batches.user_errors import creation_errors, needs_package, unknown_environment, unknown_option
from .gymnasium_vector_batch import GymnasiumVectorBatch

_PREFIX = "envpool:"
_GIVEN = ("num_envs", "batch_size", "seed", "base_path", "max_num_players", "gym_reset_return_info")
"""Options of EnvPool that are not the user's."""
_ABOUT_POOL = ("env_id", "players")
"""Keys of EnvPool's info that are about the pool, not its environments."""
_REFUSALS = (TypeError, ValueError, AssertionError, RuntimeError)
"""Errors of EnvPool for options that it does not take."""


def make_envpool(name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of the environment `name` of EnvPool.

    EnvPool has one seed for a batch: the first of `seeds`, to which it adds an environment's index in the batch.

    Args:
      name: EnvPool's name, such as `Pong-v5`.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: EnvPool's own options.  They have EnvPool's defaults, except that frames are not stacked (`stack_num` is
        1) and that there are at most as many threads as cores of the process and environments.

    Raises:
      CallboardError: if the name or an option is unknown, or envpool is not installed.
    """
    taken = check_envpool(name, options)
    check_seeds(batch_size, seeds)
    import envpool

    # Frames are stacked in replay and in the policy.
    own = {"stack_num": 1} if "stack_num" in taken else {}
    threads = {"num_threads": min(batch_size, len(os.sched_getaffinity(0)))}
    seed = int(seeds[0]) % (2**31 - batch_size)
    with creation_errors(_PREFIX + name, *_REFUSALS):
        pool = envpool.make_gymnasium(name, num_envs=batch_size, seed=seed, **{**own, **threads, **options})
    return GymnasiumVectorBatch(EnvPoolVector(name, pool), seeds)


def check_envpool(name: str, options: Mapping[str, Any]) -> list[str]:
    """Checks a name and options without making an environment; returns the names of all its options.

    Raises:
      CallboardError: if the name or an option is unknown, or envpool is not installed.
    """
    full = _PREFIX + name
    with needs_package(full, "envpool", "callboard[envpool]"):
        known = envpool_names()
        import envpool
    if name not in known:
        raise unknown_environment(full, known, "envpool.list_all_envs() lists the names of EnvPool", _PREFIX)
    config = envpool.make_spec(name).config
    taken = [key for key in config._fields if key not in _GIVEN]
    for key in options:
        if key not in taken:
            raise unknown_option(full, str(key), taken)
        default = getattr(config, key)
        if isinstance(default, bool | int | float | str):
            converted(f"environment {full!r}: {key}", options[key], type(default))
        if key == "max_episode_steps" and options[key] < 1:
            raise CallboardError(
                f"environment {full!r}: {key} is {options[key]}, it must be at least 1; leave it out for EnvPool's own"
            )
    if options:
        with creation_errors(full, *_REFUSALS):
            envpool.make_spec(name, **options)
    return taken


def envpool_names() -> list[str]:
    """Returns the names of all environments of EnvPool.

    Raises:
      ImportError: envpool is not installed.
    """
    with contextlib.suppress(ImportError):
        # EnvPool imports Gym, which prints on import that it is not maintained.
        import gym_notices.notices

        gym_notices.notices.notices.clear()
    import envpool

    # The custom ones need files of the user's.
    return [name for name in envpool.list_all_envs() if not name.startswith("VizdoomCustom")]


class EnvPoolVector(VectorEnv):
    """A pool of EnvPool as a vector environment of Gymnasium, which begins the next episode in the step after the last.

    Args:
      name: EnvPool's name of the environment.
      pool: the pool, made for Gymnasium, with batches of all its environments.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, name: str, pool: Any):
        self._name = name
        self._pool = pool
        self.num_envs = len(pool)
        with warnings.catch_warnings():
            # EnvPool gives the bounds of float32 spaces as float64, which Gymnasium warns of.
            warnings.simplefilter("ignore")
            self.single_observation_space = with_open_bounds(pool.observation_space)
            self.single_action_space = with_open_bounds(pool.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begins a new episode everywhere; the seed is the one that the pool was made with."""
        observations, info = self._pool.reset()
        return observations, _own_info(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminations, truncations, info = self._pool.step(actions)
        return observations, rewards, terminations, truncations, _own_info(info)

    def set_task(self, task: Task) -> None:
        raise no_task(f"the environment {_PREFIX + self._name!r}", "EnvPool has no tasks, leave the task out")

    def close_extras(self, **kwargs: Any) -> None:
        # The threads of a pool end with it.
        self._pool = None


def _own_info(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key not in _ABOUT_POOL}


def with_open_bounds(space: Any) -> Any:
    """Returns a space whose missing bounds are infinite.

    EnvPool writes the smallest positive number, or the lowest one, for a missing lower bound, and the largest number
    for a missing upper one.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return gymnasium.spaces.Dict({key: with_open_bounds(part) for key, part in space.spaces.items()})
    if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        return space
    limits = np.finfo(space.dtype)
    low = np.where((space.low == limits.tiny) | (space.low == limits.min), -np.inf, space.low)
    high = np.where(space.high == limits.max, np.inf, space.high)
    return gymnasium.spaces.Box(low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype.type)
