"""The other side of `replay`: the same columns, chunks and items, written with Reverb and TensorFlow alone.

This is the fastest code for exactly this task: no nests, no shape checks, no record of what was sent, items in flight
without a wait after every timestep, and no thread between the dataset and the reader.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from ..data import Layout, Record
from ..replay.writing.batch_writers import CHUNK_LENGTH
from ..replay.writing.sequences import chunk_length
from .replay_work import BATCH, ENVS, LENGTH, STEPS, TABLE, Kind, ReplaySide

_SEQUENCES_ON_THEIR_WAY = 2
_WINDOWS_ON_THEIR_WAY = 2 * CHUNK_LENGTH


class ReplayByHand(ReplaySide):
    """Reverb's own writers and its `TrajectoryDataset`."""

    def writer(self, kind: Kind, layout: Layout) -> tuple[Callable[[Record], None], Callable[[], None], Any]:
        client = reverb.Client(self.address)
        observation = layout.spec.observation
        written = _Sequences(client, observation) if kind == "sequences" else _Windows(client, observation)
        return written.write, written.flush, lambda: written.items

    def reader(self, kind: Kind, layout: Layout) -> Iterator[Any]:
        dataset = _sequences(self.address, layout) if kind == "sequences" else _windows(self.address, layout)
        return iter(dataset.prefetch(1))


class _Sequences:
    """One writer for the whole batch: one append per timestep, one item every 20.  Frames have their own column."""

    def __init__(self, client: reverb.Client, observation: Any):
        self.items = 0
        self._timesteps = 0
        self._framed = _framed(observation)
        # Fields in sequence, each with all environments.
        fields = [(name, kind, (ENVS, *shape)) for name, kind, shape in _fields(observation)]
        self._row = np.zeros((), np.dtype([("identity", "i8", (2,)), *fields]))
        self._bytes = self._row.reshape(1).view(np.uint8)
        self._writer = client.trajectory_writer(num_keep_alive_refs=2 * LENGTH + 1)
        chunk = chunk_length(LENGTH, self._framed)
        for column in [(0,), (1,)] if self._framed else [()]:
            self._writer.configure(column, num_keep_alive_refs=LENGTH + chunk + 1, max_chunk_length=chunk)

    def write(self, timestep: Record) -> None:
        row = self._row
        if self._timesteps % LENGTH == 0:
            row["identity"] = 1, self._timesteps
        for name in ("first", "last", "action", "reward", "discount", "version"):
            row[name] = getattr(timestep, name)
        row["logits"] = timestep.extras[0]
        if self._framed:
            self._writer.append((self._bytes, timestep.observation))
        else:
            row["observation"] = timestep.observation
            self._writer.append(self._bytes)
        self._timesteps += 1
        if self._timesteps > LENGTH and self._timesteps % LENGTH == 1:
            columns = self._writer.history if self._framed else [self._writer.history]
            self._writer.create_item(TABLE, 1.0, [column[-LENGTH - 1 :] for column in columns])
            self.items += 1
            self._writer.flush(_SEQUENCES_ON_THEIR_WAY)

    def flush(self) -> None:
        self._writer.flush()


class _Windows:
    """One writer per environment: a row of bytes and an item per timestep."""

    def __init__(self, client: reverb.Client, observation: Any):
        alive = STEPS + 1 + 2 * CHUNK_LENGTH
        self.items = 0
        self._timesteps = 0
        self._writers = [client.trajectory_writer(alive, validate_items=False) for _ in range(ENVS)]
        for writer in self._writers:
            writer.configure((), num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
        self._histories: list[Any] = []
        self._rows = np.zeros(ENVS, np.dtype([("age", "i4"), *_FIELDS, _observation(observation)]))
        self._bytes = self._rows.view(np.uint8).reshape(ENVS, -1)
        self._rewards = [np.zeros(ENVS, np.float32)] * (STEPS + 1)
        self._lasts = [np.zeros(ENVS, bool)] * (STEPS + 1)

    def write(self, timestep: Record) -> None:
        rows = self._rows
        rows["age"] = np.where(timestep.first, 0, rows["age"] + 1)
        for name in ("first", "last", "action", "reward", "discount", "version", "observation"):
            rows[name] = getattr(timestep, name)
        for writer, row in zip(self._writers, self._bytes, strict=True):
            writer.append(row)
        if not self._histories:
            self._histories = [writer.history for writer in self._writers]
        self._rewards = [*self._rewards[1:], timestep.reward]
        self._lasts = [*self._lasts[1:], timestep.last]
        self._timesteps += 1
        if self._timesteps > STEPS:
            priorities, skipped = np.abs(self._rewards[0]).tolist(), self._lasts[0].tolist()
            for env, writer in enumerate(self._writers):
                if not skipped[env]:
                    writer.create_item(TABLE, priorities[env], [self._histories[env][-STEPS - 1 :]])
                    self.items += 1
        if self._timesteps % CHUNK_LENGTH == 0:
            for writer in self._writers:
                writer.flush(_WINDOWS_ON_THEIR_WAY)

    def flush(self) -> None:
        for writer in self._writers:
            writer.flush()


_FIELDS: list[Any] = [
    ("first", "?", ()),
    ("last", "?", ()),
    ("action", "i4", ()),
    ("reward", "f4", ()),
    ("discount", "f4", ()),
    ("version", "i4", (2,)),
]
_SIZES = [1, 1, 4, 4, 4, 8]


def _fields(observation: Any) -> list[Any]:
    """Return the fields of a record of sequences, except frames."""
    return [*_FIELDS, ("logits", "f4", (2,)), *([] if _framed(observation) else [_observation(observation)])]


def _framed(observation: Any) -> bool:
    return len(observation.shape) == 3


def _observation(observation: Any) -> tuple[Any, ...]:
    return ("observation", observation.dtype, observation.shape)


def _bits(part: tf.Tensor, dtype: tf.DType, *shape: int) -> tf.Tensor:
    """Convert `[T, B, bytes]` to `[T, B, *shape]`."""
    return tf.bitcast(tf.reshape(part, (*part.shape[:2], *shape, 4)), dtype)


def _sequences(address: str, layout: Layout) -> tf.data.Dataset:
    """Return batches of two items, concatenated along the environments."""
    observation = layout.spec.observation
    framed = _framed(observation)
    fields = _fields(observation)
    sizes = [16, *(ENVS * np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape in fields)]
    columns = [(sum(sizes),), *([(ENVS, *observation.shape)] if framed else [])]
    shapes = [tf.TensorShape((LENGTH + 1, *column)) for column in columns]
    blocks = BATCH["sequences"] // ENVS
    items = reverb.TrajectoryDataset(
        address, TABLE, [tf.uint8] * len(columns), shapes, 2 * blocks, num_workers_per_iterator=1
    )

    def time_major(leaf: tf.Tensor) -> tf.Tensor:
        return tf.transpose(leaf, (1, 0, *range(2, leaf.shape.rank)))

    @tf.autograph.experimental.do_not_convert
    def decode(sample: Any) -> dict[str, tf.Tensor]:
        _, *parts = tf.split(time_major(sample.data[0]), sizes, axis=-1)
        record = {}
        for part, (name, kind, shape) in zip(parts, fields, strict=True):
            whole = (LENGTH + 1, blocks * ENVS, *shape)
            if kind == "?":
                record[name] = tf.reshape(part, whole) != 0
            else:
                record[name] = tf.bitcast(tf.reshape(part, (*whole, 4)), np.dtype(kind))
            if name in ("action", "reward", "discount", "logits", "version"):
                record[name] = record[name][:-1]
        if framed:
            record["observation"] = tf.reshape(
                time_major(sample.data[1]), (LENGTH + 1, blocks * ENVS, *observation.shape)
            )
        return record

    return items.batch(blocks, drop_remainder=True).map(decode)


class _Batch(NamedTuple):
    observation: tf.Tensor
    counts: tf.Tensor
    action: tf.Tensor
    reward: tf.Tensor
    discount: tf.Tensor
    version: tf.Tensor
    key: tf.Tensor
    probability: tf.Tensor
    items: tf.Tensor


def _windows(address: str, layout: Layout) -> tf.data.Dataset:
    """Return batches of windows, time-major, masked beyond the end of short windows."""
    observation = layout.spec.observation
    sizes = [4, *_SIZES, math.prod(observation.shape) * observation.dtype.itemsize]
    batch = BATCH["windows"]
    items = reverb.TrajectoryDataset(
        address,
        TABLE,
        tf.uint8,
        tf.TensorShape((STEPS + 1, sum(sizes))),
        max_in_flight_samples_per_worker=2 * batch,
        num_workers_per_iterator=1,
    )

    @tf.autograph.experimental.do_not_convert
    def decode(sample: Any) -> _Batch:
        rows = tf.transpose(sample.data, (1, 0, 2))
        _, first, last, action, reward, discount, version, vector = tf.split(rows, sizes, axis=-1)
        first, last = first[..., 0] != 0, last[..., 0] != 0
        reward, discount = tf.bitcast(reward, tf.float32), tf.bitcast(discount, tf.float32)
        steps = tf.cast(~last[:-1] & ((discount[:-1] == 0) | ~first[1:]), tf.float32)
        continues = tf.concat([tf.ones((1, batch)), steps[:-1] * tf.cast(discount[:-2] != 0, tf.float32)], axis=0)
        reached = tf.math.cumprod(continues) * steps > 0
        return _Batch(
            observation=tf.reshape(vector, (STEPS + 1, batch, *observation.shape))
            if _framed(observation)
            else _bits(vector, tf.float32, 4),
            counts=reached,
            action=tf.bitcast(action, tf.int32)[:-1],
            reward=tf.where(reached, reward[:-1], 0.0),
            discount=tf.where(reached, discount[:-1], 1.0),
            version=_bits(version, tf.int32, 2)[:-1],
            key=sample.info.key,
            probability=sample.info.probability,
            items=sample.info.table_size,
        )

    return items.batch(batch, drop_remainder=True).map(decode)
