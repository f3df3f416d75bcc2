"""Single environments of a vector environment: they can wait for a step, and take a task at each of their resets."""

from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorEnv


class WaitingEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that can wait at the beginning of an episode while others beside it are stepped.

    Args:
      env: the environment.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        self._begun: tuple[Any, Any] = (None, None)
        self._waits = False
        self._options: dict[str, Any] | None = None
        self._has_new_options = False

    def wait(self) -> None:
        """Lets the next `step`, and the `reset` after it, show the beginning of the episode once more, and no more."""
        self._waits = True

    def set_reset_options(self, options: dict[str, Any] | None) -> None:
        """Sets the options of each reset that has none of its own, also of those that a vector environment makes."""
        self._options, self._has_new_options = options, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        waits, self._waits = self._waits, False
        if not waits or self._has_new_options:
            self._has_new_options = False
            self._begun = self.env.reset(seed=seed, options=options or self._options)
        return self._begun

    def step(self, action: Any) -> Any:
        if not self._waits:
            return self.env.step(action)
        observation, info = self._begun
        return observation, 0.0, False, False, info


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
