"""Random sequences of actions to imitate."""

from typing import Any

import numpy as np
from ppo_samples import DISCRETE

from callboard.data import Record, Sample
from callboard.specs import EnvironmentSpec


def sequences(rng: Any, agent: Any, spec: EnvironmentSpec) -> Sample:
    steps, batch = agent.trace_length, agent.batch_size
    last = rng.random((steps + 1, batch)) < 0.3
    if spec is DISCRETE:
        action: Any = rng.integers(3, size=(steps, batch)).astype(np.int32)
    else:
        action = rng.uniform([-1.0, 0.0], [3.0, 1.0], (steps, batch, 2)).astype(np.float32)
    record = Record(
        observation=rng.normal(size=(steps + 1, batch, 2)).astype(np.float32),
        first=rng.random((steps + 1, batch)) < 0.3,
        last=last,
        action=action,
        reward=np.zeros((steps, batch), np.float32),
        discount=np.where(last[:-1] | (rng.random((steps, batch)) < 0.7), 1.0, 0.0).astype(np.float32),
        extras=(),
        version=np.zeros((steps, batch, 2), np.int32),
    )
    return Sample(record, ())
