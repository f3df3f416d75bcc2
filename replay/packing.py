"""How a record lies in replay columns: frames in columns of their own, all the rest as bytes in a single one.

What writing costs is the time Python spends on each column.  A column of bytes holds any number of fields of any
dtype, exactly.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..data import Layout, Nest, Record


class Fields(NamedTuple):
    """What the column of bytes holds of one tick, `[..., *shape]`."""

    age: Any
    """int32: ticks since the episode began, or since the writer did."""
    first: Any
    last: Any
    action: Nest
    reward: Any
    discount: Any
    extras: Nest
    version: Any
    vectors: list[Any]
    """The leaves of the observation that are not frames."""


class Packing:
    """The columns of one environment's records.

    A *frame* is a leaf of the observation of rank 3, `[height, width, channels]`.

    Args:
      layout: names the record.
      keep_extras: whether replay keeps the policy's extras, or they only serve to work out first priorities.
    """

    def __init__(self, layout: Layout, keep_extras: bool = False):
        record: Record = layout.record
        self._observation = record.observation
        leaves = tree.flatten(record.observation)
        self._frames = [index for index, leaf in enumerate(leaves) if is_frame(leaf)]
        self._vectors = [index for index, leaf in enumerate(leaves) if not is_frame(leaf)]
        self._keep_extras = keep_extras
        self._fields = Fields(
            age=tf.TensorSpec((), tf.int32),
            first=record.first,
            last=record.last,
            action=record.action,
            reward=record.reward,
            discount=record.discount,
            extras=record.extras if keep_extras else (),
            version=record.version,
            vectors=[leaves[index] for index in self._vectors],
        )
        self._specs = tree.flatten(self._fields)
        self._sizes = [math.prod(spec.shape) * np.dtype(spec.dtype.as_numpy_dtype).itemsize for spec in self._specs]

    @property
    def frame_specs(self) -> tuple[tf.TensorSpec, ...]:
        """Of one frame in each column of frames."""
        leaves = tree.flatten(self._observation)
        return tuple(tf.TensorSpec(leaves[index].shape, leaves[index].dtype) for index in self._frames)

    def signature(self, rows: int) -> tf.TensorSpec:
        """The column of bytes with `rows` rows.  Its name tells what the bytes are, so that a change is noticed."""
        names = [".".join(str(part) for part in path) for path, _ in tree.flatten_with_path(self._fields)]
        content = (f"{name}:{spec.dtype.name}{list(spec.shape)}" for name, spec in zip(names, self._specs, strict=True))
        return tf.TensorSpec((rows, sum(self._sizes)), tf.uint8, name=" ".join(content))

    def pack(self, record: Record, age: np.ndarray) -> np.ndarray:
        """The bytes of a record of B environments whose episodes have the ages `[B]`, uint8 `[B, size]`."""
        batch = len(record.first)
        leaves = tree.flatten(record.observation)
        fields = Fields(
            age=age.astype(np.int32),
            first=record.first,
            last=record.last,
            action=record.action,
            reward=record.reward,
            discount=record.discount,
            extras=record.extras if self._keep_extras else (),
            version=record.version,
            vectors=[leaves[index] for index in self._vectors],
        )
        parts = [np.ascontiguousarray(leaf).reshape(batch, -1).view(np.uint8) for leaf in tree.flatten(fields)]
        return np.concatenate(parts, axis=1)

    def unpack(self, packed: tf.Tensor) -> Fields:
        """The fields of bytes `[..., size]`, whose shape must be known."""
        leading = tuple(packed.shape[:-1])
        parts = tf.split(packed, self._sizes, axis=-1)
        leaves = [_from_bytes(part, leading, spec) for part, spec in zip(parts, self._specs, strict=True)]
        return tree.unflatten_as(self._fields, leaves)

    def frames(self, observation: Nest) -> list[Any]:
        """The frames of an observation, one for each of their columns."""
        leaves = tree.flatten(observation)
        return [leaves[index] for index in self._frames]

    def observation(self, vectors: list[Any], frames: list[Any]) -> Nest:
        """Puts an observation together from its parts."""
        leaves = dict(zip(self._vectors, vectors, strict=True)) | dict(zip(self._frames, frames, strict=True))
        return tree.unflatten_as(self._observation, [leaves[index] for index in range(len(leaves))])


def is_frame(spec: Any) -> bool:
    """Whether a leaf of an observation is a frame: height, width and channels."""
    return len(spec.shape) == 3


def _from_bytes(part: tf.Tensor, leading: tuple[int, ...], spec: tf.TensorSpec) -> tf.Tensor:
    shape = (*leading, *spec.shape)
    if spec.dtype == tf.bool:
        return tf.not_equal(tf.reshape(part, shape), 0)
    if spec.dtype.size == 1:
        return tf.bitcast(tf.reshape(part, shape), spec.dtype)
    return tf.bitcast(tf.reshape(part, (*shape, spec.dtype.size)), spec.dtype)
