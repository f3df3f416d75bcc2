"""Random batches of IMPALA and APPO, for comparisons of their losses with loops over numbers."""

import numpy as np
from small_worlds import ACTIONS

from callboard.agents.impala import Impala, ImpalaExtras
from callboard.data import Record, Sample


def random_sample(rng: np.random.Generator, agent: Impala, ends: float = 0.3) -> Sample:
    """A batch whose episodes end in every way, with a probability of `ends` at each timestep."""
    steps, batch = agent.unroll_length, agent.batch_size
    first = rng.random((steps + 1, batch)) < ends
    last = rng.random((steps + 1, batch)) < ends
    # After an ignored action the discount is 1; the rest may be anything.
    discount = np.where(last[:-1] | (rng.random((steps, batch)) < 0.7), 1.0, 0.0).astype(np.float32)
    return Sample(
        record=Record(
            observation=rng.normal(size=(steps + 1, batch, 2)).astype(np.float32),
            first=first,
            last=last,
            action=rng.integers(ACTIONS, size=(steps, batch)).astype(np.int32),
            reward=rng.normal(size=(steps, batch)).astype(np.float32),
            discount=discount,
            extras=ImpalaExtras(rng.normal(size=(steps, batch, ACTIONS))),
            version=rng.integers(50, size=(steps, batch, 2)).astype(np.int32),
        ),
        state=(),
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of logits `[..., A]`."""
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
