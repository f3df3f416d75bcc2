"""Records of a whole actor batch in which every number identifies its timestep and environment."""

import numpy as np
import reverb
import tensorflow as tf
import timestep_streams
import tree

from callboard.data import Record
from callboard.replay import sequence_signature

ENVS, LENGTH = 4, 8


def numbered(timestep, envs=ENVS, size=2):
    """Returns the record of a timestep; its numbers are 100 times the timestep, plus the environment."""
    number = 100 * timestep + np.arange(envs)
    return Record(
        observation=np.repeat(number[:, np.newaxis], size, axis=1).astype(np.float32),
        first=number % 7 == 0,
        last=number % 7 == 6,
        action=number.astype(np.int32),
        reward=number.astype(np.float32),
        discount=np.ones(envs, np.float32),
        extras=(),
        version=np.full((envs, 2), timestep, np.int32),
    )


def layout_of(record, state=()):
    spec = tree.map_structure(lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), record)
    return timestep_streams.layout(len(record.first))._replace(record=spec, state=state)


def big_queue(layout, length=LENGTH, name="queue"):
    signature = sequence_signature(layout, length, layout.envs_per_actor)
    return reverb.Table.queue(name, 1000, signature=signature)
