"""An environment whose time limit is short and whose values continue: a point that is to be held in the middle."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 40
SPEED = 0.12


class HeldPoint(gymnasium.Env[Any, Any]):
    """Moves a point by its action; a reward is 1 in the middle and falls with the distance."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._point, self._steps = self.np_random.uniform(-1.0, 1.0, 2), 0
        return self._point.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._point = np.clip(self._point + SPEED * np.asarray(action), -2.0, 2.0)
        self._steps += 1
        reward = float(np.exp(-4.0 * np.linalg.norm(self._point)))
        return self._point.astype(np.float32), reward, False, self._steps >= STEPS, {}
