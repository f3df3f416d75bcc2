"""First-in-first-out queue of gradients that actors have computed: each is applied once, in the order of writing."""

import dataclasses
import random
from typing import Any, NamedTuple

import reverb
import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from .fifo_queue import FifoQueue
from .packing import WRITER_BITS, item_id
from .reading.queue_items import queue_items
from .reading.read_ahead import read_ahead
from .replay_protocol import ReplayDataset
from .servers.handle import ReplayHandle, flushed
from .servers.tables import queue_table

_TABLE = "gradients"


class GradientItem(NamedTuple):
    """The gradient of a block of T timesteps of an actor's B environments."""

    id: Any
    """int64 `[2]`, for `DuplicateFilter`."""
    gradient: Any
    """`[P]` in Keras's `floatx`, the gradient with respect to all weights, flat."""
    metrics: Any
    """`[M]` in the same dtype, the loss and other numbers of the block."""
    version: Any
    """int32 `[T, B, 2]`, versions of the weights that acted."""
    valid: Any
    """bool `[T, B]`, the valid transitions."""
    observation: Nest
    """`[T + 1, B, ...]`, the block's observations for running statistics; `()` where there are none."""
    discounted_return: Any = ()
    """float32 `[T, B]`, see `Sample.discounted_return`; `()` where there are no such statistics."""


@dataclasses.dataclass(frozen=True)
class GradientQueue(FifoQueue):
    """A queue of gradients for agents whose actors compute them (A3C).

    Attributes:
      length: timesteps of a block (T).
      waiting: gradients that may wait for the learner, at least 3; more means older gradients.
      keeps_observations: whether items contain the block's observations.
      returns_discount: γ of the discounted returns that items contain; None for none.
    """

    length: int
    waiting: int
    keeps_observations: bool
    returns_discount: float | None = None

    @property
    def pace(self) -> None:
        """None: only the length of the queue holds actors back."""
        return None

    def tables(self) -> list[reverb.Table]:
        return [queue_table(_TABLE, self.signature(), self.per_shard(self.waiting))]

    def writer(self, replay: ReplayHandle, actor: int) -> "GradientQueueWriter":
        return GradientQueueWriter(replay, self.layout.shard_of(actor))

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        items = queue_items(replay, _TABLE, self.signature(), range(self.layout.shards))
        received = replay.received
        received.prepare()

        @tf.autograph.experimental.do_not_convert
        def is_new(item: Any) -> tf.Tensor:
            return tf.size(received.new(item.data.id[tf.newaxis])) > 0

        new = items.filter(is_new).map(tf.autograph.experimental.do_not_convert(lambda item: item.data))
        return ReplayDataset(read_ahead(new, 0), _TABLE, items_per_batch=1)

    def signature(self) -> GradientItem:
        """Returns the `tf.TensorSpec` nest of an item; it does not depend on the number of weights."""
        numbers = tf.TensorSpec((None,), tf.keras.backend.floatx())
        batch = self.layout.envs_per_actor
        observation = specs.add_leading(self.layout.record.observation, self.length + 1, batch)
        return GradientItem(
            id=tf.TensorSpec((2,), tf.int64),
            gradient=numbers,
            metrics=numbers,
            version=tf.TensorSpec((self.length, batch, 2), tf.int32),
            valid=tf.TensorSpec((self.length, batch), tf.bool),
            observation=observation if self.keeps_observations else (),
            discounted_return=() if self.returns_discount is None else tf.TensorSpec((self.length, batch), tf.float32),
        )


class GradientQueueWriter:
    """Writes gradients to the queue.

    Args:
      replay: handle of the replay to write to.
      shard: index of the replay shard.
    """

    def __init__(self, replay: ReplayHandle, shard: int = 0):
        self.items_written = 0
        self._caught_up = True
        self._number = random.SystemRandom().getrandbits(WRITER_BITS)
        self._writer = replay.client(shard).trajectory_writer(num_keep_alive_refs=1)

    def append(self, record: Any, state: Nest = ()) -> None:
        """Adds a `GradientItem`, whose `id` is set here.  Never blocks; call `ready` before the next one."""
        self._writer.append(record._replace(id=item_id(self._number, self.items_written)))
        self._writer.create_item(_TABLE, 1.0, tree.map_structure(lambda column: column[-1], self._writer.history))
        self.items_written += 1
        self._caught_up = False

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds until the queue has taken all gradients: more under way would be older."""
        self._caught_up = self._caught_up or flushed(self._writer, timeout, 0)
        return self._caught_up

    def close(self) -> None:
        """Closes the connection; unconfirmed items are lost."""
        self._writer.close()
