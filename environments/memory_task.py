"""A memory task: a cue in the first observation determines the correct action at the end of the episode."""

import dm_env
import numpy as np
from dm_env import specs


class Memory(dm_env.Environment):
    """An environment whose first observation is the cue for which of two actions is rewarded `delay` steps later.

    Earlier actions have no effect.  An episode has `delay + 1` steps.  Its return is 1 if the last action was correct
    and 0 otherwise, so the mean return is the fraction of correct episodes, 1/2 by chance.
    """

    def __init__(self, seed: int, delay: int = 20):
        """Creates the environment.

        Args:
          seed: seed of the cues.
          delay: steps between cue and choice, at least 1.

        Raises:
          ValueError: if `delay` is less than 1.
        """
        if delay < 1:
            raise ValueError(f"delay must be at least 1, not {delay}")
        self._random = np.random.default_rng(seed)
        self._delay = delay
        self._over = True

    def observation_spec(self) -> specs.BoundedArray:
        """Spec of the observation: the cue and the time.

        The cue is -1 for action 0 and 1 for action 1, and 0 after the first observation.  The time runs from 0 to 1; it
        is 1 at the rewarded action and after it.
        """
        return specs.BoundedArray((2,), np.float32, minimum=[-1.0, 0.0], maximum=1.0, name="cue_and_time")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2, name="answer")

    def reset(self) -> dm_env.TimeStep:
        self._over = False
        self._time = 0
        self._right = int(self._random.integers(2))
        return dm_env.restart(self._observation(cue=2 * self._right - 1))

    def step(self, action: int) -> dm_env.TimeStep:
        if self._over:
            return self.reset()
        self._over = self._time == self._delay
        if self._over:
            return dm_env.termination(float(action == self._right), self._observation())
        self._time += 1
        return dm_env.transition(0.0, self._observation())

    def _observation(self, cue: int = 0) -> np.ndarray:
        return np.array([cue, self._time / self._delay], np.float32)
