"""A combination lock that is learned with a curriculum and not without one.

The effect is that of Florensa et al. 2017, "Reverse curriculum generation for reinforcement learning"
(arXiv:1707.05300): where a reward is far away, an agent learns from starts that move back from the goal as it succeeds.

Run from the root of the repository, with the curriculum of the recipe and without it:

    callboard train --recipe examples/combination_lock.yaml
    callboard train --recipe examples/combination_lock.yaml --curriculum "[]"
"""

from typing import Any

import gymnasium
import numpy as np

ACTIONS = 3


class CombinationLock(gymnasium.Env):
    """A row of dials; every dial has one right action, a wrong one ends the episode, the last right one earns 1.

    The observation shows at which dial the agent is.  Uniformly random actions open a lock of `length` dials with the
    probability `3 ** -length`.

    A task `{start: 15}` puts the agent at that dial at the start of an episode; its own start is dial 0.
    """

    def __init__(self, length: int = 20, combination: int = 0):
        """Creates a lock of `length` dials; `combination` seeds the right actions."""
        self._right = np.random.default_rng(combination).integers(ACTIONS, size=length)
        self.observation_space = gymnasium.spaces.Discrete(length + 1)
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._dial = int((options or {}).get("start", 0))
        return self._dial, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        right = bool(action == self._right[self._dial])
        self._dial += right
        opened = self._dial == len(self._right)
        info = {"opened": opened, "dial": self._dial}
        return self._dial, float(opened), opened or not right, False, info
