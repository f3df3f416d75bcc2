"""An environment that only waits: `callboard.benchmarks.sleeping:sleeping`."""

import time

import numpy as np
from dm_env import specs

from ..data import Nest, Timestep
from ..environments import BatchedEnvironment
from ..settings.named_objects import nameable
from ..specs import EnvironmentSpec

SECONDS = 0.08
"""Duration of a step of a batch, during which the CPU is not used."""
_EPISODE = 1000


class SleepingBatch(BatchedEnvironment):
    """A batch whose step takes a fixed time, like simulators on other cores.

    Args:
      batch_size: number of environments.
      seconds: duration of a step, for any size of the batch.
    """

    def __init__(self, batch_size: int, seconds: float):
        self._batch_size = batch_size
        self._seconds = seconds
        self._timesteps = 0

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(2, dtype=np.int32))

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def reset(self) -> Timestep:
        self._timesteps = 0
        return self._timestep()

    def step(self, actions: Nest) -> Timestep:
        time.sleep(self._seconds)
        self._timesteps += 1
        return self._timestep()

    def render(self) -> np.ndarray:
        return np.zeros((64, 64, 3), np.uint8)

    def close(self) -> None:
        pass

    def _timestep(self) -> Timestep:
        """Return a timestep; every thousandth is a termination and a reset in one."""
        size, begins = self._batch_size, self._timesteps % _EPISODE == 0
        terminates = begins and self._timesteps > 0
        return Timestep(
            observation=np.full((size, 4), np.sin(self._timesteps), np.float32),
            reward=np.ones(size, np.float32),
            discount=np.full(size, 0.0 if terminates else 1.0, np.float32),
            first=np.full(size, begins),
            last=np.zeros(size, np.bool_),
        )


@nameable
def sleeping(batch_size: int, seconds: float = SECONDS) -> SleepingBatch:
    """Return the environments; the factory for `--env`."""
    return SleepingBatch(batch_size, seconds)
