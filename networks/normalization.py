"""Running observation normalization, with statistics that are part of the weights."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree
from dm_env import specs

from ..data import Nest

_CLIP = 10.0
_EPSILON = 1e-8


class Move(NamedTuple):
    """How the statistics of a leaf have moved, float64 `[*shape]`."""

    ratio: Any
    """σ'/σ, the standard deviation now over that before."""
    shift: Any
    """(μ' - μ)/σ, the change of the mean in standard deviations before."""


class RunningNormalizer(tf.Module):
    """Normalizes observations to zero mean and unit variance over all observations that the learner has processed.

    The statistics are non-trainable variables: they are saved in checkpoints, fetched by actors with the weights, and
    changed only by `update`, which the learner calls.  Leaves that are not floating point have no statistics and pass
    through unchanged.

    The statistics are float64.  A feature whose mean is a million times its standard deviation is thus normalized as
    accurately as its float32 values allow, and a constant feature becomes 0.
    """

    follow: Callable[[Sequence[Move | None]], None] | None = None
    """Called in every replica with each later move of the statistics of the leaves, None for those without."""

    def __init__(self, observation: Nest, name: str | None = None, memory: float = math.inf):
        """Creates statistics.

        Args:
          observation: nest of dm_env specs of the observations.
          name: name of the module.
          memory: number of newest observations, about, that the statistics are of: once so many have been processed,
            the weight of older ones decays exponentially.
        """
        super().__init__(name)
        self._memory = memory

        def variable(value: Any, what: str) -> tf.Variable:
            # All replicas assign the same value, so the first replica's is kept.
            return tf.Variable(
                tf.cast(value, tf.float64),
                trainable=False,
                name=what,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

        self._dtype = tf.keras.backend.floatx()
        leaves = tree.flatten(observation)
        self._leaves = len(leaves)
        self._normalized = [index for index, leaf in enumerate(leaves) if leaf.dtype.kind == "f"]
        shapes = [leaves[index].shape for index in self._normalized]
        self._count = variable(0.0, "count")
        self._means = [variable(tf.zeros(shape), "mean") for shape in shapes]
        self._variances = [variable(tf.ones(shape), "variance") for shape in shapes]

    @tf.autograph.experimental.do_not_convert
    def __call__(self, observation: Nest) -> Nest:
        """Normalizes observations `[..., *shape]` and clips them to ten standard deviations."""
        leaves = tree.flatten(observation)
        for index, mean, variance in zip(self._normalized, self._means, self._variances, strict=True):
            # Rounding the mean to float32 can shift it by more than a standard deviation, so the rounding error is
            # subtracted too.  This costs half as much as a subtraction in float64.
            leaf = tf.cast(leaves[index], self._dtype)
            rounded = tf.cast(mean, self._dtype)
            rest = tf.cast(mean - tf.cast(rounded, mean.dtype), self._dtype)
            leaves[index] = tf.clip_by_value((leaf - rounded - rest) * self._scale(variance), -_CLIP, _CLIP)
        return tree.unflatten_as(observation, leaves)

    @staticmethod
    def normalized_spec(observation: Nest) -> Nest:
        """Returns the dm_env specs of normalized observations, in which floats have no bounds."""
        return tree.map_structure(
            lambda leaf: specs.Array(leaf.shape, leaf.dtype, leaf.name) if leaf.dtype.kind == "f" else leaf,
            observation,
        )

    @tf.autograph.experimental.do_not_convert
    def divide_by_deviation(self, observation: Nest) -> Nest:
        """Scales observations `[..., *shape]` to unit variance, without centering or clipping them."""
        leaves = tree.flatten(observation)
        for index, variance in zip(self._normalized, self._variances, strict=True):
            leaves[index] = tf.cast(leaves[index], self._dtype) * self._scale(variance)
        return tree.unflatten_as(observation, leaves)

    @tf.autograph.experimental.do_not_convert
    def update(self, observation: Nest, leading: int = 2, weight: tf.Tensor | None = None) -> None:
        """Updates the statistics with a batch, over all replicas.

        The batch's moments are computed about its own mean (the corrected two-pass algorithm, Chan, Golub and LeVeque
        1983, equation 1.7) and merged into the statistics by the pairwise formula of the same paper (2.1).

        Args:
          observation: leaves `[T, B, *shape]`, one replica's share.
          leading: number of leading axes.
          weight: floats or bools `[T, B]`, how often each observation counts; None for once.
        """
        if not self._normalized:
            return
        flat = tree.flatten(observation)
        leaves = [tf.cast(flat[index], tf.float64) for index in self._normalized]
        axes = list(range(leading))
        times = None if weight is None else tf.cast(weight, tf.float64)

        def total(leaf: tf.Tensor) -> tf.Tensor:
            if times is not None:
                ones = tf.ones(leaf.shape.rank - leading, tf.int32)
                leaf = tf.math.multiply_no_nan(leaf, tf.reshape(times, tf.concat([tf.shape(times), ones], axis=0)))
            return tf.reduce_sum(leaf, axes)

        taken = tf.reduce_prod(tf.shape(leaves[0])[:leading]) if times is None else tf.reduce_sum(times)
        number, sums = _over_replicas((tf.cast(taken, tf.float64), [total(leaf) for leaf in leaves]))
        centers = [tf.math.divide_no_nan(part, number) for part in sums]
        deviations = [leaf - center for leaf, center in zip(leaves, centers, strict=True)]
        rests, squares = _over_replicas(
            ([total(leaf) for leaf in deviations], [total(tf.square(leaf)) for leaf in deviations])
        )
        count = tf.minimum(self._count + number, tf.maximum(number, tf.constant(self._memory, number.dtype)))
        # The batch's share of all observations; 0 if nothing in the batch is valid, and then nothing changes.
        share = tf.math.divide_no_nan(number, count)
        batch = zip(centers, rests, squares, strict=True)
        moves: list[Move | None] = [None] * self._leaves
        is_first = tf.equal(self._count, 0.0)
        each = zip(self._normalized, self._means, self._variances, batch, strict=True)
        for index, mean, variance, (center, rest, square) in each:
            # Rounding error of the batch's mean.
            error = tf.math.divide_no_nan(rest, number)
            batch_variance = tf.maximum(tf.math.divide_no_nan(square, number) - tf.square(error), 0.0)
            shift = center + error - mean
            change = share * (batch_variance - variance + (1.0 - share) * tf.square(shift))
            scale = tf.math.rsqrt(variance + _EPSILON)
            ratio = tf.sqrt(variance + change + _EPSILON) * scale
            # Before the first batch there were no statistics that could have moved.
            move = Move(tf.where(is_first, tf.ones_like(ratio), ratio), share * shift * scale)
            moves[index] = move._replace(shift=tf.where(is_first, tf.zeros_like(ratio), move.shift))
            variance.assign_add(change)
            mean.assign_add(share * shift)
        self._count.assign(count)
        if self.follow is not None:
            self.follow(moves)

    def _scale(self, variance: tf.Variable) -> tf.Tensor:
        """Returns the reciprocal of the standard deviation."""
        return tf.cast(tf.math.rsqrt(variance + _EPSILON), self._dtype)


class WithoutPart(tf.Module):
    """Drops a part of observations after they are normalized; it may also be missing already.

    Args:
      observation: dm_env specs of the observation, a dictionary.
      key: the part.
      normalizer: normalizes whole observations; None leaves them unchanged.
      name: name of the module.
    """

    def __init__(self, observation: Nest, key: str, normalizer: RunningNormalizer | None, name: str | None = None):
        super().__init__(name)
        self._key = key
        self._part = observation[key]
        self._normalizer = normalizer

    def __call__(self, observation: Nest) -> Nest:
        """Returns the normalized observation `[N, ...]` without the part."""
        if self._normalizer is not None:
            if self._key not in observation:
                zeros = tree.map_structure(lambda leaf: tf.zeros((1, *leaf.shape), leaf.dtype), self._part)
                observation = {**observation, self._key: zeros}
            observation = self._normalizer(observation)
        return self.without(observation)

    def without(self, observation: Nest) -> Nest:
        """Returns an observation, a dictionary, without the part."""
        return {key: part for key, part in observation.items() if key != self._key}


def _over_replicas(sums: Nest) -> Nest:
    """Adds up every leaf over all replicas."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return sums
    return context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
