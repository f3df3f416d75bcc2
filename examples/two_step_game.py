"""The two-step game of Rashid et al. 2018, "QMIX" (arXiv:1803.11485), section 5: VDN earns 7 in it and QMIX 8.

Run from the root of the repository:

    callboard train --recipe qmix-two-step --env examples.two_step_game:TwoStepGame \
        --agent-groups "{team: ['*']}" --agent-state environment

With `--recipe vdn-two-step` it is VDN.  The recipes' own environment is the same game as one team; this example shows
how its two agents become a team.
"""

from collections.abc import Mapping

import numpy as np
from dm_env import specs

from callboard.environments import AgentStep, MultiAgentEnvironment, two_step_game
from callboard.specs import EnvironmentSpec


class TwoStepGame(MultiAgentEnvironment):
    """The game with two agents, each of which observes the state and receives half of what the team earns.

    A group of both receives the whole.
    """

    agents = two_step_game.MEMBERS
    state_size = 3

    def __init__(self) -> None:
        self._game = two_step_game.TwoStepGame()
        spec = EnvironmentSpec(specs.BoundedArray((3,), np.float32, 0.0, 1.0), specs.DiscreteArray(2))
        self.specs = dict.fromkeys(self.agents, spec)
        self._state = np.zeros(3, np.float32)

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        self.is_over = False
        observation, _ = self._game.reset(seed=seed)
        return self._steps(observation, 0.0)

    def step(self, actions: Mapping[str, int]) -> dict[str, AgentStep]:
        observation, earned, self.is_over, _, _ = self._game.step(dict(actions))
        return self._steps(observation, earned)

    def state(self) -> np.ndarray:
        """Returns the state one-hot, float32 `[3]`."""
        return self._state

    def _steps(self, observation: dict[str, np.ndarray], earned: float) -> dict[str, AgentStep]:
        self._state = observation["state"]
        return {agent: AgentStep(observation[agent], earned / 2, terminated=self.is_over) for agent in self.agents}
