"""The two-step game (Rashid et al. 2018, section 5), which shows what a sum of values cannot represent."""

from typing import Any

import gymnasium
import numpy as np

MEMBERS = ("agent_0", "agent_1")
_PAYOFFS = {1: np.array([[7.0, 7.0], [7.0, 7.0]]), 2: np.array([[0.0, 1.0], [1.0, 8.0]])}
"""Rewards of the second step, by state and by the actions of both members."""


class TwoStepGame(gymnasium.Env):
    """A team of two with two actions each, whose episodes have two steps.

    In the first, the action of `agent_0` chooses the payoffs of the second: action 0 those that are always 7, action 1
    the matrix [[0, 1], [1, 8]].  The best return is 8.  A team whose value is a sum expects less than 7 of the matrix
    while it explores, and therefore gets 7.

    Each member observes which of the three states the game is in, one-hot, and so does the team's `state`.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self) -> None:
        one_hot = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({part: one_hot for part in (*MEMBERS, "state")})
        self.action_space = gymnasium.spaces.Dict({member: gymnasium.spaces.Discrete(2) for member in MEMBERS})
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._state = 0
        return self._observation(), {}

    def step(self, action: dict[str, int]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first, second = (int(action[member]) for member in MEMBERS)
        if self._state == 0:
            self._state = 1 + first
            return self._observation(), 0.0, False, False, {}
        return self._observation(), float(_PAYOFFS[self._state][first, second]), True, False, {}

    def _observation(self) -> dict[str, np.ndarray]:
        state = np.eye(3, dtype=np.float32)[self._state]
        return {part: state.copy() for part in (*MEMBERS, "state")}
