"""The two-step game of Rashid et al. 2018, "QMIX" (arXiv:1803.11485), section 5: VDN earns 7 in it and QMIX 8.

Run from the root of the repository:

    callboard train --recipe qmix-two-step --env examples.two_step_game:TwoStepGame \
        --agent-groups "{team: ['*']}" --agent-state environment

With `--recipe vdn-two-step` it is VDN.  The recipes' own environment is the same game written as one team; this one
shows how two agents become a team.
"""

from collections.abc import Mapping

import numpy as np
from dm_env import specs

from callboard.environments import AgentStep, MultiAgentEnvironment
from callboard.specs import EnvironmentSpec

FIRST, SAFE, RISKY, END = range(4)
_PAYOFFS = {SAFE: ((7.0, 7.0), (7.0, 7.0)), RISKY: ((0.0, 1.0), (1.0, 8.0))}


class TwoStepGame(MultiAgentEnvironment):
    """Two agents choose once which of two matrix games to play, and then play it together.

    In the first step, the action of `agent_0` decides: 0 leads to a game in which the team earns 7 for any actions, 1
    to one in which it earns 0, 1 or 8, as the payoffs ((0, 1), (1, 8)) show.  The best sum of one function for each
    agent, as VDN learns it, underestimates the 8 and chooses the 7.

    All agents observe which state the game is in, and each receives half of what the team earns, so that a group of
    them receives the whole.
    """

    agents = ("agent_0", "agent_1")
    state_size = 4

    def __init__(self) -> None:
        spec = EnvironmentSpec(specs.DiscreteArray(4, name="state"), specs.DiscreteArray(2))
        self.specs = dict.fromkeys(self.agents, spec)
        self._state = FIRST

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        self._state, self.is_over = FIRST, False
        return self._steps(0.0)

    def step(self, actions: Mapping[str, int]) -> dict[str, AgentStep]:
        first, second = (int(actions[agent]) for agent in self.agents)
        if self._state == FIRST:
            self._state = RISKY if first else SAFE
            return self._steps(0.0)
        earned = _PAYOFFS[self._state][first][second]
        self._state, self.is_over = END, True
        return self._steps(earned)

    def state(self) -> np.ndarray:
        """Returns the state one-hot, float32 `[4]`."""
        return np.eye(4, dtype=np.float32)[self._state]

    def _steps(self, earned: float) -> dict[str, AgentStep]:
        observation = np.array(self._state, np.int32)
        return {agent: AgentStep(observation, earned / 2, terminated=self.is_over) for agent in self.agents}
