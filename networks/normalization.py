"""Observations brought to zero mean and unit variance, by statistics that travel with the weights."""

from typing import Any

import tensorflow as tf
import tree

from ..data import Nest

_CLIP = 10.0
_EPSILON = 1e-8


class RunningNormalizer(tf.Module):
    """Mean and variance of all observations that the learner has seen.

    The statistics are variables that are not trained: they are saved in checkpoints, fetched by actors with the
    weights, and changed only by `update`, which the learner calls.  Leaves that are not floating point pass unchanged.
    """

    def __init__(self, observation: Nest, name: str | None = None):
        """Statistics for observations like `observation`, a nest of dm_env specs."""
        super().__init__(name)
        dtype = tf.keras.backend.floatx()

        def variable(value: Any, what: str) -> tf.Variable:
            # In a replica's context all replicas assign the same value, so that of the first one will do.
            return tf.Variable(
                tf.cast(value, dtype),
                trainable=False,
                name=what,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

        self._floats = [leaf.dtype.kind == "f" for leaf in tree.flatten(observation)]
        shapes = [leaf.shape for leaf in tree.flatten(observation)]
        self._count = variable(0.0, "count")
        self._means = [variable(tf.zeros(shape), "mean") for shape in shapes]
        self._variances = [variable(tf.ones(shape), "variance") for shape in shapes]

    def __call__(self, observation: Nest) -> Nest:
        """Observations `[..., *shape]`, normalised and clipped to ten standard deviations."""
        leaves = tree.flatten(observation)
        normalised = [
            self._normalise(leaf, mean, variance) if is_float else leaf
            for leaf, mean, variance, is_float in zip(leaves, self._means, self._variances, self._floats, strict=True)
        ]
        return tree.unflatten_as(observation, normalised)

    def divide_by_deviation(self, observation: Nest) -> Nest:
        """Observations `[..., *shape]`, brought to unit variance but not to zero mean, and not clipped."""
        return tree.map_structure(
            lambda leaf, variance: tf.cast(leaf, variance.dtype) * tf.math.rsqrt(variance + _EPSILON),
            observation,
            tree.unflatten_as(observation, self._variances),
        )

    def update(self, observation: Nest, leading: int = 2, mask: tf.Tensor | None = None) -> None:
        """Takes in a batch, over all replicas (Chan et al. 1983, the pairwise formula 2.1).

        Args:
          observation: leaves `[T, B, *shape]`, one replica's share.
          leading: number of leading axes.
          mask: bool `[T, B]`, which of them are taken in; None for all.
        """
        axes = list(range(leading))
        leaves = [tf.cast(leaf, self._count.dtype) for leaf in tree.flatten(observation)]
        # One reduction over the replicas for everything: number, sums and sums of squares about the present mean.
        taken = tf.ones(tf.shape(leaves[0])[:leading], self._count.dtype) if mask is None else mask
        taken = tf.cast(taken, self._count.dtype)
        number = tf.reduce_sum(taken)
        centred = [
            (leaf - mean) * tf.reshape(taken, tf.concat([tf.shape(taken), tf.ones_like(mean.shape)], axis=0))
            for leaf, mean in zip(leaves, self._means, strict=True)
        ]
        sums = [tf.reduce_sum(leaf, axes) for leaf in centred]
        squares = [tf.reduce_sum(tf.square(leaf), axes) for leaf in centred]
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            number, sums, squares = context.all_reduce(tf.distribute.ReduceOp.SUM, (number, sums, squares))
        total = self._count + number
        # Of the batch in all that was seen: 0, and nothing changes, where nothing of it is taken in.
        share = tf.math.divide_no_nan(number, total)
        for mean, variance, part, square in zip(self._means, self._variances, sums, squares, strict=True):
            shift = tf.math.divide_no_nan(part, number)
            about_mean = tf.math.divide_no_nan(square, number) - share * tf.square(shift)
            variance.assign_add(share * (about_mean - variance))
            mean.assign_add(share * shift)
        self._count.assign(total)

    def _normalise(self, leaf: tf.Tensor, mean: tf.Variable, variance: tf.Variable) -> tf.Tensor:
        centred = tf.cast(leaf, mean.dtype) - mean
        return tf.clip_by_value(centred * tf.math.rsqrt(variance + _EPSILON), -_CLIP, _CLIP)
