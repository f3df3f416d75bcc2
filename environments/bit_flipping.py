"""Bit flipping, an environment with goals that is learned with hindsight experience replay and not without it.

It is that of Andrychowicz et al. 2017, "Hindsight experience replay" (arXiv:1707.01495), section 3.1: with n bits there
are 2^n states, and the reward is -1 in all of them but the goal.
"""

from typing import Any

import gymnasium
import numpy as np

Observation = dict[str, np.ndarray]


class BitFlipping(gymnasium.Env):
    """`bits` bits, of which an action flips one; state and goal are random, and an episode takes `bits` steps at most.

    Reaching the goal ends the episode, with the reward 0; all other rewards are -1.
    """

    def __init__(self, bits: int = 15):
        """Creates an environment of `bits` bits."""
        vector = gymnasium.spaces.Box(0.0, 1.0, (bits,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict({name: vector for name in names})
        self.action_space = gymnasium.spaces.Discrete(bits)
        self._bits = bits

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(2, size=(2, self._bits)).astype(np.float32)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._state[action] = 1 - self._state[action]
        self._steps += 1
        reached = self.compute_terminated(self._state, self._goal, {})
        reward = self.compute_reward(self._state, self._goal, {})
        return self._observation(), float(reward), bool(reached), self._steps == self._bits, {"reached": bool(reached)}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Returns the rewards `[...]` for goals `[..., bits]`."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - 1

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Returns whether the goals `[..., bits]` are reached, bool `[...]`."""
        return np.all(achieved_goal == desired_goal, axis=-1)

    def _observation(self) -> Observation:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }
