"""Ticks that say who they are, and an agent whose learner writes down which of them it has learnt from."""

import dataclasses
import pathlib

import gymnasium
import numpy as np

from callboard.agents.impala import Impala

LOG = pathlib.Path("learnt.txt")
_SCALE = 2.0**16


class Numbered(gymnasium.Env):
    """Observes the environment's seed, in two halves, and the number of its step: exactly, in float32."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._seed = 0
        self._steps = 0

    def reset(self, seed=None, options=None):
        self._seed = self._seed if seed is None else seed
        self._steps += 1
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        return self._observe(), 1.0, self._steps % 100 == 0, False, {}

    def _observe(self):
        return np.array([self._seed % _SCALE, self._seed // _SCALE, self._steps], np.float32) / np.float32(_SCALE)


@dataclasses.dataclass(frozen=True)
class LearnsAndTells(Impala):
    """IMPALA that appends the first tick of every sequence that it learns from to `learnt.txt`, `seed step` a line."""

    def make_learner(self, networks, strategy, layout):
        learner = super().make_learner(networks, strategy, layout)
        step = learner.step

        def step_and_tell(batches):
            batch = next(batches)
            ticks = np.rint(batch.record.observation[0].numpy() * _SCALE).astype(int)
            with LOG.open("a") as log:
                log.writelines(f"{low + high * int(_SCALE)} {tick}\n" for low, high, tick in ticks)
            return step(iter([batch]))

        learner.step = step_and_tell
        return learner
