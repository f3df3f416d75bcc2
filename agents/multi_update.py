"""A compiled function that makes one or several learner updates per call.

Every call into TensorFlow has an overhead of some tenths of a millisecond of Python, as long as an update of a small
network takes.  To amortize it, one call can learn from several batches, one after the other, in a loop inside the
function.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree

from ..data import Priorities, Sample, Update

UpdateOnce = Callable[[Any], dict[str, Any]]


class MultiUpdate:
    """Makes `updates_per_call` updates per call, each from one batch.

    Args:
      update: takes a batch distributed over the replicas, makes one update and returns metrics: scalars by name, summed
        over the replicas.  A metric called `priority` is `[B]`, the new priorities of the items of all replicas in
        order.
      strategy: the strategy whose replicas share the batch.
      updates_per_call: batches per call.  If more than one, the argument is a `Sample` in which the batches, all of the
        same size, are concatenated along B.  A single batch may be any nest.
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
        """Makes the updates and returns the metrics of the last one and the priorities of all, in order.

        The structure, shapes and dtypes of `batches` must be the same in all calls.
        """
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function(batches)
        # Calling the `tf.function` would look up the concrete function by all leaves again, which takes 0.25 ms.
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
        """Makes one update after the other; the returned `priority` is `[updates_per_call, B]`."""
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
            # The number of metrics is only known when the body is traced.
            shape_invariants=(tf.TensorShape(()), tf.TensorShape((None,)), tf.TensorShape(None)),
            parallel_iterations=1,  # Each update starts from the weights of the previous one.
        )
        metrics = dict(zip(names, tf.unstack(last, len(names)), strict=True))
        return {**metrics, "priority": priorities.stack()} if with_priorities else metrics

    def _cut(self, batches: Sample, number: tf.Tensor) -> Sample:
        """Returns a replica's share of one of the batches."""

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
        """Concatenates a leaf of all replicas to `[updates_per_call * B]`, ordered by batch, then by replica."""
        shares = self._strategy.experimental_local_results(leaf)
        of_each = [tf.reshape(share, (self._updates_per_call, -1)) for share in shares]
        return tf.reshape(tf.concat(of_each, axis=1), [-1])
