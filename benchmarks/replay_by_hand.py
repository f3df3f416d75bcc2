"""The other side of `replay`: the same columns, chunks and items, written with Reverb and TensorFlow alone.

As somebody would write it who wants nothing else than this and wants it fast: no nests, no checks of shapes, no record
of what was sent, items on their way without a wait after every tick, and no thread between the dataset and who reads.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from ..data import Layout, Record
from ..replay.environment_writers import CHUNK_LENGTH
from ..replay.sequences import chunk_length
from .replay import BATCH, ENVS, LENGTH, STEPS, TABLE, Kind, Replay

_SEQUENCES_ON_THEIR_WAY = 4
_WINDOWS_ON_THEIR_WAY = 2 * CHUNK_LENGTH
_CHUNK = chunk_length(LENGTH)

_OBSERVED = ("observation", "first", "last")
_CHOSEN = ("action", "reward", "discount", "logits", "version")


class ReplayByHand(Replay):
    """Reverb's own writers and its `TrajectoryDataset`."""

    def writer(self, kind: Kind, layout: Layout) -> tuple[Callable[[Record], None], Callable[[], None], Any]:
        client = reverb.Client(self.address)
        written = _Sequences(client) if kind == "sequences" else _Windows(client, layout.spec.observation)
        return written.write, written.flush, lambda: written.items

    def reader(self, kind: Kind, layout: Layout) -> Iterator[Any]:
        dataset = _sequences(self.address, layout) if kind == "sequences" else _windows(self.address, layout)
        return iter(dataset.prefetch(1))


class _Sequences:
    """One writer to the whole batch: an append a tick, an item every 20."""

    def __init__(self, client: reverb.Client):
        self.items = 0
        self._ticks = 0
        self._writer = client.trajectory_writer(num_keep_alive_refs=2 * LENGTH + 1)
        for column in (*_OBSERVED, *_CHOSEN):
            self._writer.configure((column,), num_keep_alive_refs=LENGTH + _CHUNK + 1, max_chunk_length=_CHUNK)
        self._writer.configure(("identity",), num_keep_alive_refs=3, max_chunk_length=1)

    def write(self, tick: Record) -> None:
        row = {
            "observation": tick.observation,
            "first": tick.first,
            "last": tick.last,
            "action": tick.action,
            "reward": tick.reward,
            "discount": tick.discount,
            "logits": tick.extras[0],
            "version": tick.version,
        }
        if self._ticks % LENGTH == 0:
            row["identity"] = np.array([1, self._ticks], np.int64)
        self._writer.append(row)
        self._ticks += 1
        if self._ticks > LENGTH and self._ticks % LENGTH == 1:
            history = self._writer.history
            item = (
                *(history[column][-LENGTH - 1 :] for column in _OBSERVED),
                *(history[column][-LENGTH - 1 : -1] for column in _CHOSEN),
                history["identity"][-LENGTH - 1],
            )
            self._writer.create_item(TABLE, 1.0, item)
            self.items += 1
            self._writer.flush(_SEQUENCES_ON_THEIR_WAY)

    def flush(self) -> None:
        self._writer.flush()


class _Windows:
    """A writer to each environment: a row of bytes and perhaps a frame a tick, and an item every tick."""

    def __init__(self, client: reverb.Client, observation: Any):
        alive = STEPS + 1 + 2 * CHUNK_LENGTH
        self.items = 0
        self._ticks = 0
        self._framed = len(observation.shape) == 3
        self._writers = [client.trajectory_writer(alive, validate_items=False) for _ in range(ENVS)]
        for writer in self._writers:
            for column in range(1 + self._framed):
                writer.configure((column,), num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
        self._rows = np.zeros(ENVS, _row_dtype(observation))
        self._rewards = [np.zeros(ENVS, np.float32)] * (STEPS + 1)
        self._lasts = [np.zeros(ENVS, bool)] * (STEPS + 1)

    def write(self, tick: Record) -> None:
        rows = self._rows
        rows["age"] = np.where(tick.first, 0, rows["age"] + 1)
        for name in ("first", "last", "action", "reward", "discount", "version"):
            rows[name] = getattr(tick, name)
        if not self._framed:
            rows["observation"] = tick.observation
        packed = rows.view(np.uint8).reshape(ENVS, -1).copy()
        self._rewards = [*self._rewards[1:], tick.reward]
        self._lasts = [*self._lasts[1:], tick.last]
        self._ticks += 1
        complete = self._ticks > STEPS
        priorities, skipped = np.abs(self._rewards[0]).tolist(), self._lasts[0].tolist()
        for env, writer in enumerate(self._writers):
            writer.append((packed[env], tick.observation[env]) if self._framed else (packed[env],))
            if complete and not skipped[env]:
                history = writer.history
                writer.create_item(TABLE, priorities[env], [column[-STEPS - 1 :] for column in history])
                self.items += 1
            if self._ticks % CHUNK_LENGTH == 0:
                writer.flush(_WINDOWS_ON_THEIR_WAY)

    def flush(self) -> None:
        for writer in self._writers:
            writer.flush()


def _row_dtype(observation: Any) -> np.dtype:
    fields: list[Any] = [("age", "i4"), ("first", "?"), ("last", "?"), ("action", "i4"), ("reward", "f4")]
    fields += [("discount", "f4"), ("version", "i4", (2,))]
    if len(observation.shape) != 3:
        fields.append(("observation", "f4", observation.shape))
    return np.dtype(fields)


def _sequences(address: str, layout: Layout) -> tf.data.Dataset:
    """Batches of two items, joined along their environments."""
    logits, version = ((2,), tf.float32), ((2,), tf.int32)
    observation = layout.record.observation
    observed = [(tuple(observation.shape), observation.dtype), ((), tf.bool), ((), tf.bool)]
    chosen = [((), tf.int32), ((), tf.float32), ((), tf.float32), logits, version]
    dtypes = (*(dtype for _, dtype in observed + chosen), tf.int64)
    shapes = (
        *(tf.TensorShape((LENGTH + 1, ENVS, *shape)) for shape, _ in observed),
        *(tf.TensorShape((LENGTH, ENVS, *shape)) for shape, _ in chosen),
        tf.TensorShape((2,)),
    )
    blocks = BATCH["sequences"] // ENVS
    items = reverb.TrajectoryDataset(address, TABLE, dtypes, shapes, 2 * blocks, num_workers_per_iterator=1)

    @tf.autograph.experimental.do_not_convert
    def join(sample: Any) -> tuple[tf.Tensor, ...]:
        def join_column(leaf: tf.Tensor) -> tf.Tensor:
            blocks, length, envs, *rest = leaf.shape
            return tf.reshape(tf.transpose(leaf, (1, 0, *range(2, leaf.shape.rank))), (length, blocks * envs, *rest))

        return tuple(join_column(leaf) for leaf in sample.data[:-1])

    return items.batch(blocks, drop_remainder=True).map(join)


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
    """Batches of windows, time-major, with what lies beyond the end of a short one blotted out."""
    observation = layout.spec.observation
    framed = len(observation.shape) == 3
    size = _row_dtype(observation).itemsize
    shapes = [tf.TensorShape((STEPS + 1, *shape)) for shape in ((size,), *([observation.shape] if framed else []))]
    dtypes = [tf.uint8] * len(shapes)
    batch = BATCH["windows"]
    items = reverb.TrajectoryDataset(address, TABLE, dtypes, shapes, 2 * batch, num_workers_per_iterator=1)
    sizes = [4, 1, 1, 4, 4, 4, 8] + ([] if framed else [16])

    @tf.autograph.experimental.do_not_convert
    def decode(sample: Any) -> _Batch:
        rows = tf.transpose(sample.data[0], (1, 0, 2))
        _, first, last, action, reward, discount, version, *vector = tf.split(rows, sizes, axis=-1)
        first, last = first[..., 0] != 0, last[..., 0] != 0
        reward, discount = tf.bitcast(reward, tf.float32), tf.bitcast(discount, tf.float32)
        steps = tf.cast(~last[:-1] & ((discount[:-1] == 0) | ~first[1:]), tf.float32)
        goes_on = tf.concat([tf.ones((1, batch)), steps[:-1] * tf.cast(discount[:-2] != 0, tf.float32)], axis=0)
        reached = tf.math.cumprod(goes_on) * steps > 0
        whole = (STEPS + 1, batch)
        return _Batch(
            observation=tf.transpose(sample.data[1], (1, 0, 2, 3, 4))
            if framed
            else tf.bitcast(tf.reshape(vector[0], (*whole, 4, 4)), tf.float32),
            counts=reached,
            action=tf.bitcast(action, tf.int32)[:-1],
            reward=tf.where(reached, reward[:-1], 0.0),
            discount=tf.where(reached, discount[:-1], 1.0),
            version=tf.bitcast(tf.reshape(version, (*whole, 2, 4)), tf.int32)[:-1],
            key=sample.info.key,
            probability=sample.info.probability,
            items=sample.info.table_size,
        )

    return items.batch(batch, drop_remainder=True).map(decode)
