"""An environment whose parts have the names that users give: letters of other languages, spaces, quotes."""

import gymnasium
import numpy as np
from gymnasium import spaces


class OddNames(gymnasium.Env):
    """The action of `löschen` 1 is rewarded; an episode has 20 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"
    observation_space = spaces.Dict(
        {
            "größe": spaces.Box(-1, 1, (3,), np.float32),
            "a b": spaces.Box(-1, 1, (2,), np.float32),
            "q\"u'o": spaces.Discrete(4),
            "$(touch x)": spaces.Box(-1, 1, (1,), np.float32),
            "n" * 200: spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Dict({"löschen": spaces.Discrete(3), "a b": spaces.Discrete(2)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {"ü b": 0}

    def step(self, action):
        self._steps += 1
        reward = float(action["löschen"] == 1)
        return self.observation_space.sample(), reward, False, self._steps >= 20, {"ü b": self._steps}

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)
