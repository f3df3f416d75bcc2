"""How a single environment waits for a step, and takes a task at each of its resets.

This module is part of the program of workers (see `workers.worker_process`): it needs nothing but Python 3.9.
"""

from __future__ import annotations

from typing import Any


class Waiting:
    """For a wrapper of Gymnasium whose environment waits at the beginning of an episode while others are stepped.

    Args:
      env: the environment.
    """

    env: Any

    def __init__(self, env: Any):
        super().__init__(env)  # type: ignore[call-arg]
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
