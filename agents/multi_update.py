"""A learner's updates as one compiled function, which makes one or several of them in a call.

A call into TensorFlow costs the same whatever it does: some tenths of a millisecond of Python, as long as a small
network takes to learn.  So where batches wait, several are taken at once and learned from one after the other, by a
loop inside the function.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree

from ..data import Priorities, Sample, Update

UpdateOnce = Callable[[Any], dict[str, Any]]


class MultiUpdate:
    """`updates_per_call` updates by one batch each.

    Args:
      update: takes a batch, as the replicas share it, makes one update and returns metrics: scalars by name, added up
        over the replicas.  One that is called `priority` is `[B]`, the new priorities of the items of all replicas,
        those of the first replica first.
      strategy: whose replicas share the batch.
      updates_per_call: batches in what it is called with: a `Sample` in which they lie side by side along B, the same
        number of sequences in each.  A single batch may be any nest.
      finite: names of the metrics that must be finite.
    """

    def __init__(
        self,
        update: UpdateOnce,
        strategy: tf.distribute.Strategy,
        updates_per_call: int = 1,
        finite: tuple[str, ...] = (),
    ):
        self._update = update
        self._finite = finite
        self._strategy = strategy
        self._updates_per_call = updates_per_call
        self._function = tf.function(self._call, autograph=False)
        self._concrete: Any = None

    def __call__(self, batches: Any) -> Update:
        """Makes the updates.  Metrics are those of the last one, priorities those of all in their order.

        All calls must be with nests of the same structure, shapes and dtypes.
        """
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function(batches)
        # Calling the `tf.function` would look for this one again, by all leaves: a quarter of a millisecond.
        metrics, priorities = self._concrete(batches)
        return Update(metrics, priorities, self._updates_per_call, self._finite)

    def _call(self, batches: Any) -> tuple[dict[str, tf.Tensor], Priorities | None]:
        metrics = self._update(batches) if self._updates_per_call == 1 else self._update_each(batches)
        priority = metrics.pop("priority", None)
        if priority is None:
            return metrics, None
        key, shard = self._in_order(batches.info.key), self._in_order(batches.info.shard)
        return metrics, Priorities(key, shard, tf.reshape(priority, [-1]))

    def _update_each(self, batches: Sample) -> dict[str, tf.Tensor]:
        """One update after the other; `priority` is `[updates_per_call, B]`."""
        floats = tf.as_dtype(tf.keras.backend.floatx())
        names: list[str] = []
        with_priorities = False

        def body(number: tf.Tensor, _: tf.Tensor, priorities: tf.TensorArray) -> tuple[Any, ...]:
            nonlocal with_priorities
            metrics = self._update(self._strategy.run(self._cut, args=(batches, number)))
            with_priorities = "priority" in metrics
            if with_priorities:
                priorities = priorities.write(number, metrics.pop("priority"))
            names[:] = metrics
            return number + 1, tf.stack([tf.cast(value, floats) for value in metrics.values()]), priorities

        start = tf.constant(0), tf.zeros((0,), floats), tf.TensorArray(floats, self._updates_per_call)
        _, last, priorities = tf.while_loop(
            lambda number, *_: number < self._updates_per_call,
            body,
            start,
            # How many metrics there are shows when the body is traced, once.
            shape_invariants=(tf.TensorShape(()), tf.TensorShape((None,)), tf.TensorShape(None)),
            parallel_iterations=1,  # Each begins with the weights that the one before has left.
        )
        metrics = dict(zip(names, tf.unstack(last, len(names)), strict=True))
        return {**metrics, "priority": priorities.stack()} if with_priorities else metrics

    def _cut(self, batches: Sample, number: tf.Tensor) -> Sample:
        """A replica's share of one of the batches."""

        def along(axis: int) -> Callable[[tf.Tensor], tf.Tensor]:
            def cut(leaf: tf.Tensor) -> tf.Tensor:
                size = leaf.shape.as_list()
                size[axis] //= self._updates_per_call
                begin = [number * size[axis] if index == axis else 0 for index in range(len(size))]
                return tf.slice(leaf, begin, size)

            return cut

        return Sample(
            tree.map_structure(along(1), batches.record),
            tree.map_structure(along(0), batches.state),
            tree.map_structure(along(0), batches.info),
        )

    def _in_order(self, leaf: Any) -> tf.Tensor:
        """What belongs to the items, `[updates_per_call * B]`: batch after batch, and replica after replica in it."""
        shares = self._strategy.experimental_local_results(leaf)
        of_each = [tf.reshape(share, (self._updates_per_call, -1)) for share in shares]
        return tf.reshape(tf.concat(of_each, axis=1), [-1])
