"""A custom environment, in which any agent can be trained.

Run from the root of the repository:

    callboard train impala --env examples.corridor:Corridor --max-steps 30000 --stop-return 1 \
        --agent.optimizer.name adam --agent.optimizer.epsilon 1.6e-3 --agent.optimizer.learning-rate 5e-3 \
        --agent.unroll-length 10 --agent.batch-size 16 --evaluate-every 5000

The arguments of its constructor are options: `--env-options.length 21`.
"""

import dm_env
import numpy as np
from dm_env import specs


class Corridor(dm_env.Environment):
    """A corridor with a treasure at one end and a pit at the other; the observation shows where the treasure is.

    An episode starts in the middle.  The treasure ends it with a reward of 1, the pit with -1, and the time limit is
    `4 * length` steps.  The maximum return is 1.
    """

    def __init__(self, seed: int, length: int = 11):
        """Creates a corridor of `length` cells, an odd number of at least 3; `seed` seeds the treasures' positions."""
        if length < 3 or length % 2 == 0:
            raise ValueError(f"length must be odd and at least 3, not {length}")
        self._random = np.random.default_rng(seed)
        self._reach = length // 2
        self._time_limit = 4 * length
        self._over = True

    def observation_spec(self) -> specs.BoundedArray:
        """The positions of the agent and of the treasure, from -1 (left end) to 1 (right end)."""
        return specs.BoundedArray((2,), np.float32, minimum=-1.0, maximum=1.0, name="place_and_sign")

    def action_spec(self) -> specs.DiscreteArray:
        """0 moves one cell to the left, 1 to the right."""
        return specs.DiscreteArray(2, name="direction")

    def reset(self) -> dm_env.TimeStep:
        self._over = False
        self._place, self._time = 0, 0
        self._treasure = self._random.choice((-self._reach, self._reach))
        return dm_env.restart(self._observation())

    def step(self, action: int) -> dm_env.TimeStep:
        if self._over:
            return self.reset()
        self._place += 1 if action == 1 else -1
        self._time += 1
        at_an_end = abs(self._place) == self._reach
        self._over = at_an_end or self._time == self._time_limit
        if at_an_end:
            return dm_env.termination(1.0 if self._place == self._treasure else -1.0, self._observation())
        # A time limit is not a terminal state: its discount is 1, that of a termination is 0.
        make_timestep = dm_env.truncation if self._over else dm_env.transition
        return make_timestep(0.0, self._observation())

    def _observation(self) -> np.ndarray:
        return np.array([self._place, self._treasure], np.float32) / self._reach
