"""What batches of environments show when random actions are played."""

import numpy as np
import tree

from callboard import environments
from callboard.environments.checks.trial import random_actions


def played(name, options, task=None, steps=40, batch_size=3):
    """Everything that a batch shows, as bytes, and its infos as text."""
    batch = environments.make(name, batch_size, range(5, 5 + batch_size), options, slots=[3, 4, 5], actor=1)
    batch.keep_infos()
    if task is not None:
        batch.set_task(task)
    timestep, rng, seen = batch.reset(), np.random.default_rng(0), []
    for step in range(steps):
        arrays = tree.map_structure(lambda leaf: (leaf.dtype.str, leaf.shape, leaf.tobytes()), timestep._asdict())
        seen.append((arrays, repr(batch.infos)))
        if step == steps // 2 and task is not None:
            batch.set_task(None)
        timestep = batch.step(random_actions(batch.spec, timestep.observation, rng, batch_size))
    facts = batch.spec, batch.has_own_seeds, batch.frames_per_second
    batch.close()
    batch.close()
    return seen, facts
