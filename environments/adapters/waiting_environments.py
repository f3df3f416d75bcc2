"""Single environments of a vector environment that wait for a step, see `waiting`."""

from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorEnv

from .waiting import Waiting


class WaitingEnvironment(Waiting, gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that can wait at the beginning of an episode while others beside it are stepped.

    Args:
      env: the environment.
    """


def let_wait(vector: VectorEnv[Any, Any, Any]) -> list[WaitingEnvironment]:
    """Lets the environments of a `SyncVectorEnv` wait; returns none for others, which are not objects of this process.

    Args:
      vector: a vector environment, whose own list of environments is replaced.
    """
    unwrapped = vector.unwrapped
    if not isinstance(unwrapped, SyncVectorEnv) or not all(isinstance(one, gymnasium.Env) for one in unwrapped.envs):
        return []
    waiting = [WaitingEnvironment(environment) for environment in unwrapped.envs]
    unwrapped.envs = list(waiting)
    return waiting
