"""Writing batched timesteps as sequences, adjacent or overlapping, and reading them; no timestep is stored twice."""

import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf
import tree

from ... import specs
from ...data import Layout, Nest, Record, Sample, any_true
from ..packing import ITEM_ID_BYTES, WRITER_BITS, Packing, item_id
from ..servers.handle import ReplayHandle, flushed
from ..stacking import is_frame, path_text, single_frames, stack_rows, without_frames
from .queue_room import QueueRoom

# Chunks of one timestep need many messages.  With one chunk per sequence, the whole chunk is sent even if two sequences
# share only part of it, which matters for frames and for large overlaps.
_CHUNKS_PER_SEQUENCE = 2
_CHUNKS_WHERE_MUCH_IS_SHARED = 4


class SequenceItem(NamedTuple):
    """A replay item that holds T transitions of a batch of B environments."""

    packed: Any
    """uint8 `[T + 1, size]`, one row per timestep with all data except frames; see `SequenceColumns`."""
    frames: tuple[Any, ...]
    """`[T + 1, B, height, width, channels]` for each kind of frame; if they are stacked, with the frames before."""
    state: Nest
    """The recurrent state before the first observation, `[B, ...]`, without frames."""


class SequenceColumns:
    """Storage layout of sequences: one column per kind of frame, and a single column for the rest of a timestep.

    A row of the latter starts with the id of the item that starts at this timestep, for `DuplicateFilter`.  The
    record's fields follow, each for all environments, then the ages of their episodes if frames are stacked, and
    discounted returns if they are kept.

    Args:
      layout: contains the specs of the record and the recurrent state.
      batch: number of environments of an item (B).
      stack: number of frames in a stack (k).  With k > 1 an item begins with the frames of the k - 1 timesteps before.
      repeats: whether the last observation of a sequence is written again, as the first of the next.
      keeps_returns: whether rows also hold the discounted returns of `Sample.discounted_return`.
    """

    def __init__(self, layout: Layout, batch: int, stack: int = 1, repeats: bool = False, keeps_returns: bool = False):
        self._record: Record = layout.record
        self._state: Nest = without_frames(layout.state)
        self._batch = batch
        self._stack = stack
        self._skips = stack > 1 and repeats
        """Whether the frame before a sequence's first is the same one, and is left out."""
        self._earlier = stack - 1 + self._skips
        """Frames of each kind in an item before that of its first timestep."""
        leaves = tree.flatten(layout.record.observation)
        self._frames = [index for index, leaf in enumerate(leaves) if is_frame(leaf)]
        paths = [path_text(path) for path, _ in tree.flatten_with_path(layout.record.observation)]
        self._kinds = [paths[index] for index in self._frames]
        """Paths of the kinds of frames in an observation."""
        self.is_single = not self._frames and not tree.flatten(self._state)
        """Whether there is one column, which is not inside a tuple: that takes half the time."""
        self._others = [index for index, leaf in enumerate(leaves) if not is_frame(leaf)]
        age = tf.TensorSpec((), tf.int32) if stack > 1 else ()
        returns = tf.TensorSpec((), tf.float32) if keeps_returns else ()
        others = [leaves[index] for index in self._others], layout.record._replace(observation=()), age, returns
        self.packing = Packing((tf.TensorSpec((2,), tf.int64), *specs.add_leading(others, batch)))
        # The observation's leaves are the first of the record's.
        packed = [index for index in range(len(tree.flatten(layout.record))) if index not in self._frames]
        self.packed: Callable[[Sequence[Any]], tuple[Any, ...]] = operator.itemgetter(*packed)
        """Selects from a record's leaves those to pack between item id and age, in the order of `packing`."""

    def frames(self, leaves: Sequence[Any]) -> list[Any]:
        """Selects from a record's leaves those that are frames."""
        return [leaves[index] for index in self._frames]

    def frames_before(self, state: Nest, leaves: Sequence[Any]) -> list[Sequence[Any]]:
        """Returns the frames of the timesteps before a writer's first, which has these leaves, from the state there."""
        if self._stack == 1:
            return []
        return [*single_frames(state, self._stack, self._kinds), self.frames(leaves)][: self._earlier]

    def writer(self, client: reverb.Client, length: int, period: int) -> reverb.TrajectoryWriter:
        """Returns a writer of these columns, see `SequenceWriter`."""
        writer = client.trajectory_writer(num_keep_alive_refs=2 * length + 1 + self._earlier)
        chunk = chunk_length(length, framed=bool(self._frames), overlapping=period < length)
        alive, first_state = self._earlier + length + chunk + 1, 1 + len(self._frames)
        for column in range(first_state):
            path = () if self.is_single else (column,)
            writer.configure(path, num_keep_alive_refs=alive, max_chunk_length=chunk)
        for column in range(first_state, first_state + len(tree.flatten(self._state))):
            writer.configure((column,), num_keep_alive_refs=length // period + 2, max_chunk_length=1)
        return writer

    def newest(self, history: Any, length: int) -> list[Any]:
        """Returns the parts of a writer's `history` that are an item of its newest timesteps."""
        begin = -length - 1
        if self.is_single:
            return [history[begin:]]
        first_state = 1 + len(self._frames)
        frames = [column[begin - self._earlier :] for column in history[1:first_state]]
        return [history[0][begin:], *frames, *(column[begin] for column in history[first_state:])]

    def signature(self, length: int) -> SequenceItem:
        """Returns the `tf.TensorSpec` nest of an item of `length` transitions."""
        frames = self.frames(tree.flatten(self._record))
        return SequenceItem(
            packed=self.packing.signature(length + 1),
            frames=tuple(specs.add_leading(frame, self._earlier + length + 1, self._batch) for frame in frames),
            state=specs.add_leading(self._state, self._batch),
        )

    def item_ids(self, packed: tf.Tensor) -> tf.Tensor:
        """Returns the ids of packed items `[N, T + 1, size]`, int64 `[N, 2]`; N must be static."""
        return tf.bitcast(tf.reshape(packed[:, 0, :ITEM_ID_BYTES], (packed.shape[0], 2, 8)), tf.int64)

    def read(self, items: SequenceItem) -> Sample:
        """Converts items `[N, ...]` to a `Sample`, concatenated along B, with stacks of frames."""
        _, others, record, age, discounted_return = self.packing.unpack(_time_major(items.packed))
        frames = [self._stacked(_joined(_time_major(kind)), age) for kind in items.frames]
        leaves = dict(zip(self._others, _joined(others), strict=True)) | dict(zip(self._frames, frames, strict=True))
        observation = tree.unflatten_as(self._record.observation, [leaves[index] for index in sorted(leaves)])
        record = _fields(
            record,
            observed=_joined,
            chosen=lambda field: tree.map_structure(lambda leaf: leaf[:-1], _joined(field)),
        )._replace(observation=observation)
        return Sample(
            record,
            tree.map_structure(lambda leaf: tf.reshape(leaf, (-1, *leaf.shape[2:])), items.state),
            discounted_return=tree.map_structure(lambda leaf: leaf[:-1], _joined(discounted_return)),
        )

    def _stacked(self, frames: tf.Tensor, age: Any) -> tf.Tensor:
        """Stacks frames `[earlier + T + 1, N * B, ...]` to `[T + 1, N * B, ...]`."""
        if self._skips:
            frames = tf.concat([frames[: self._stack - 1], frames[self._stack :]], axis=0)
        return frames if self._stack == 1 else stack_rows(frames, _joined(age), self._stack)


def _time_major(leaf: tf.Tensor) -> tf.Tensor:
    """Transposes [N, T, ...] to [T, N, ...]."""
    return tf.transpose(leaf, (1, 0, *range(2, leaf.shape.rank)))


def _joined(nest: Nest) -> Nest:
    """Reshapes [T, N, B, ...] to [T, N * B, ...]."""
    return tree.map_structure(lambda leaf: tf.reshape(leaf, (leaf.shape[0], -1, *leaf.shape[3:])), nest)


def sequence_signature(
    layout: Layout, length: int, batch: int, stack: int = 1, repeats: bool = False, keeps_returns: bool = False
) -> SequenceItem:
    """Returns the `tf.TensorSpec` nest of a `SequenceItem` of `length` transitions of `batch` environments.

    Args:
      layout: see `SequenceColumns`.
      length: transitions in a sequence (T).
      batch: number of environments (B).
      stack: see `SequenceColumns`.
      repeats: see `SequenceColumns`.
      keeps_returns: see `SequenceColumns`.
    """
    return SequenceColumns(layout, batch, stack, repeats, keeps_returns).signature(length)


def sequence_spec(layout: Layout, length: int, batch: int) -> Sample:
    """Returns the `tf.TensorSpec` nest of a `Sample` of `batch` sequences of `length` transitions."""
    record = _fields(
        layout.record,
        observed=lambda field: specs.add_leading(field, length + 1, batch),
        chosen=lambda field: specs.add_leading(field, length, batch),
    )
    return Sample(record, specs.add_leading(layout.state, batch))


class SequenceWriter:
    """Writes an actor's timesteps as sequences of `length` transitions, one every `period` timesteps.

    Each call of `append` adds a timestep of all environments of the batch, and an item holds the sequences of all of
    them.  Items share the chunks of common timesteps: with `period == length` only the observation that ends one
    sequence and starts the next, with a shorter period all timesteps of the overlap.  With `period == length + 1` that
    observation is written twice.  A stack's earlier frames are those of the timesteps before; at first, the state's.

    Args:
      replay: handle of the replay to write to.
      layout: contains the specs of record and state; the first `append` raises `ValueError` if a shape or dtype of the
        record differs.
      table: the table's name.
      length: transitions in a sequence (T).
      period: timesteps between the starts of consecutive sequences.
      shard: index of the replay shard.
      waits_for_room: whether `ready` makes the actor wait for room in the queue, see `QueueRoom`; otherwise, while more
        than two items are unconfirmed.
      stack: number of frames in a stack (k).
      returns_discount: γ of the discounted returns that sequences hold; None for none.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        layout: Layout,
        table: str,
        length: int,
        period: int,
        shard: int = 0,
        waits_for_room: bool = True,
        stack: int = 1,
        returns_discount: float | None = None,
    ):
        self._record_spec = layout.record
        self._repeats = period > length
        keeps_returns = returns_discount is not None
        self._columns = SequenceColumns(layout, layout.envs_per_actor, stack, self._repeats, keeps_returns)
        self._ages = None if stack == 1 else EpisodeAges(layout.envs_per_actor, stack)
        self._returns = None if returns_discount is None else DiscountedReturns(returns_discount, layout.envs_per_actor)
        self._rows = self._columns.packing.rows(1)
        self._row = self._rows.bytes[0]  # A view.
        self._table = table
        self._length = length
        self._period = period
        self._max_pending = 1 if waits_for_room else 2
        self._writer_number = random.SystemRandom().getrandbits(WRITER_BITS)
        self._item_id = item_id(self._writer_number, 0)
        self._timesteps = 0
        self._caught_up = True
        self.items_written = 0
        client = replay.client(shard)
        self._room = QueueRoom(client, table) if waits_for_room else None
        self._writer = self._columns.writer(client, length, period)

    def append(self, record: Record, state: Nest) -> None:
        """Adds one timestep: a `Record` of arrays `[B, ...]` and the recurrent state `[B, ...]` before it.

        Never blocks; call `ready` before the next timestep.
        """
        if self._timesteps == 0:
            check_shapes(record, self._record_spec)
        begins = self._timesteps % self._period == 0
        again = begins and self._repeats and self._timesteps > 0
        if begins:
            self._item_id = item_id(self._writer_number, self._timesteps // self._period)
        leaves = tree.flatten(record)
        packed = self._columns.packed(leaves)
        if self._ages is not None:
            packed = (*packed, self._ages.after(record, again))
        if self._returns is not None:
            packed = (*packed, self._returns.after(record, again))
        self._rows.fill((self._item_id, *packed))
        if self._columns.is_single:
            self._writer.append(self._row)
        else:
            frames, states = self._columns.frames(leaves), tree.flatten(without_frames(state)) if begins else ()
            if self._timesteps == 0:
                # Their rows are not part of any item.
                for earlier in self._columns.frames_before(state, leaves):
                    self._writer.append((self._row, *earlier, *states))
            self._writer.append((self._row, *frames, *states))
        self._timesteps += 1
        beyond_first = self._timesteps - (self._length + 1)
        if beyond_first >= 0 and beyond_first % self._period == 0:
            newest = self._columns.newest(self._writer.history, self._length)
            self._writer.create_item(self._table, priority=1.0, trajectory=newest)
            self.items_written += 1
            self._caught_up = False
            if self.items_written == 1:
                # Close the chunks after the first observation of the next sequence, so that from now on every sequence
                # ends at the end of a chunk and is sent without waiting for later timesteps.
                self.ready(timeout=0.0, max_pending=0)

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds for the server to catch up; returns False if it has not.

        While it returns False the actor must not step, or pending items would accumulate in memory.
        """
        if max_pending is None:
            if self._caught_up:
                return True
            if self._room is not None:
                self._caught_up = self._room.wait(self._writer, timeout)
                return self._caught_up
            max_pending = self._max_pending
        if not flushed(self._writer, timeout, max_pending):
            return False
        self._caught_up = max_pending <= self._max_pending
        return True

    def take_waited_for_room(self) -> bool:
        """Returns whether the queue was full before `ready` returned True; once for each time."""
        return self._room is not None and self._caught_up and self._room.take_was_full()

    def close(self) -> None:
        """Closes the connection; unconfirmed items are lost."""
        self._writer.close()


class EpisodeAges:
    """The age in timesteps of every environment's episode, of a batch, which says how many frames are stacked.

    Args:
      batch: number of environments.
      stack: number of frames in a stack (k).
    """

    def __init__(self, batch: int, stack: int):
        # The frames before the first timestep, those of the state, never belong to another episode.
        self._ages = np.full(batch, stack - 2, np.int32)

    def after(self, record: Record, again: bool = False) -> np.ndarray:
        """Returns the ages `[B]` at a timestep; the array changes with the next one.

        Args:
          record: the timestep, arrays `[B, ...]`.
          again: whether it is the same one as in the call before.
        """
        if not again:
            self._ages += 1
        self._ages[record.first] = 0
        return self._ages


class DiscountedReturns:
    """The discounted return of every environment of a batch, see `Sample.discounted_return`.

    Args:
      discount: γ.
      batch: number of environments (B).
    """

    def __init__(self, discount: float, batch: int):
        self._discount = np.float32(discount)
        self._before = self._after = np.zeros(batch, np.float32)

    def after(self, record: Record, again: bool = False) -> np.ndarray:
        """Returns the returns `[B]` up to the reward that follows a timestep.

        Args:
          record: the timestep, arrays `[B, ...]`.
          again: whether it is the same one as in the call before.
        """
        if not again:
            self._before = self._after
        self._after = self._discount * self._before
        if any_true(record.first):
            self._after[record.first] = 0
        self._after += record.reward
        return self._after


def chunk_length(length: int, framed: bool, overlapping: bool = False) -> int:
    """Returns the number of timesteps per chunk, a divisor of `length`.

    Args:
      length: timesteps of a sequence, without the observation that it shares with the next.
      framed: whether observations contain frames.
      overlapping: whether sequences share more than that observation.
    """
    longest = length // (_CHUNKS_WHERE_MUCH_IS_SHARED if framed or overlapping else _CHUNKS_PER_SEQUENCE)
    return max(divisor for divisor in range(1, max(1, longest) + 1) if length % divisor == 0)


def _fields(record: Record, observed: Any, chosen: Any) -> Record:
    """Applies `observed` to the fields with T + 1 timesteps in a sequence, and `chosen` to those with T."""
    return Record(
        observation=observed(record.observation),
        first=observed(record.first),
        last=observed(record.last),
        action=chosen(record.action),
        reward=chosen(record.reward),
        discount=chosen(record.discount),
        extras=chosen(record.extras),
        version=chosen(record.version),
    )


def check_shapes(record: Record, expected: Record) -> None:
    tree.assert_same_structure(record, expected)
    for (path, value), spec in zip(tree.flatten_with_path(record), tree.flatten(expected), strict=True):
        value = np.asarray(value)
        if value.shape[1:] != tuple(spec.shape) or value.dtype != spec.dtype.as_numpy_dtype:
            name = ".".join(str(part) for part in path)
            raise ValueError(
                f"the record's {name} is {value.dtype}{value.shape[1:]} for one environment, "
                f"but replay was laid out for {spec.dtype.name}{tuple(spec.shape)}"
            )
