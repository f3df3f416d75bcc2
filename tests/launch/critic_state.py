"""An environment whose observation has a part for the critic alone."""

import gymnasium
import numpy as np


class Guess(gymnasium.Env):
    """Pays 1 for the action that the state names, of which the agent's own observation is a noisy copy."""

    observation_space = gymnasium.spaces.Dict(
        own=gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64), state=gymnasium.spaces.Box(0, 1, (2,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observation(), {}

    def step(self, action):
        reward = float(self._state[action])
        self._time += 1
        return self._observation(), reward, False, self._time == 10, {}

    def _observation(self):
        self._state = np.eye(2, dtype=np.float32)[self.np_random.integers(2)]
        return {"own": self._state + self.np_random.normal(0, 0.3, 2), "state": self._state}
