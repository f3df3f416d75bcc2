"""Generated timesteps, for writing without stepping environments."""

from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Record

OBSERVATIONS = {
    "4 floats": dm_specs.Array((4,), np.float32, name="observation"),
    "84x84 bytes": dm_specs.BoundedArray((84, 84, 1), np.uint8, 0, 255, name="observation"),
}
_TIMESTEPS = 64


def layout_of(observation: dm_specs.Array, envs: int) -> Layout:
    """Return the layout of one actor's environments with `observation`, two actions and a policy that emits logits."""
    spec = specs.EnvironmentSpec(observation, dm_specs.DiscreteArray(2, np.int32))
    flag, number = tf.TensorSpec((), tf.bool), tf.TensorSpec((), tf.float32)
    record = Record(
        observation=specs.tensor_spec(observation),
        first=flag,
        last=flag,
        action=tf.TensorSpec((), tf.int32),
        reward=number,
        discount=number,
        extras=(tf.TensorSpec((2,), tf.float32),),
        version=tf.TensorSpec((2,), tf.int32),
    )
    return Layout(spec, envs, actors=1, shards=1, replicas=1, seed=1, max_steps=10**9, record=record, state=())


def timesteps_of(layout: Layout, count: int = _TIMESTEPS) -> list[Record]:
    """Return timesteps of all environments of an actor, in which no episode begins or ends.

    Bytes are noise, which does not compress; floats are normally distributed; integers are 0.
    """
    rng = np.random.default_rng(0)

    def column(spec: Any) -> np.ndarray:
        shape = (layout.envs_per_actor, *spec.shape)
        dtype = spec.dtype.as_numpy_dtype
        if dtype == np.uint8:
            return rng.integers(0, 256, shape, np.uint8)
        if np.issubdtype(dtype, np.floating):
            return rng.normal(size=shape).astype(dtype)
        return np.zeros(shape, dtype)

    timesteps = [tree.map_structure(column, layout.record) for _ in range(count)]
    return [timestep._replace(discount=np.ones_like(timestep.discount)) for timestep in timesteps]
