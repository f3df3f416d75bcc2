"""Batch renormalization (Ioffe 2017, https://arxiv.org/abs/1702.03275), whose statistics are part of the weights."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_MOMENTUM = 0.99
_EPSILON = 1e-3
_LARGEST_SCALE = 3.0
_LARGEST_SHIFT = 5.0
WARM_UP = 100_000
"""Passes with the batch's statistics alone, before they are corrected, as in the authors' code of CrossQ."""

_counted: contextvars.ContextVar[tf.Tensor | None] = contextvars.ContextVar("counted", default=None)


@contextlib.contextmanager
def batch_statistics(counted: tf.Tensor) -> Iterator[None]:
    """Within this context layers normalize by the batch, and update their running statistics, by which they else do.

    Args:
      counted: bool `[N]`, the items of the batch whose statistics these are.
    """
    token = _counted.set(counted)
    try:
        yield
    finally:
        _counted.reset(token)


class BatchRenormalization(tf.keras.layers.Layer):
    """Normalizes units over the batch, with a trained scale and offset.

    Statistics of the batch are corrected to running ones, by factors that are bounded and have no gradient (algorithm
    1), once there are enough of these.  A batch is that of all replicas.
    """

    def build(self, input_shape: Any) -> None:
        # Of K networks at once, each has its own.
        shape = (*input_shape[:-2], 1, input_shape[-1])
        ones, zeros = tf.keras.initializers.Ones(), tf.keras.initializers.Zeros()
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer=ones)
        self.beta = self.add_weight(name="beta", shape=shape, initializer=zeros)

        def running(name: str, shape: Any, initializer: Any) -> tf.Variable:
            # All replicas assign the same value, so the first replica's is kept.
            first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            return self.add_weight(name=name, shape=shape, initializer=initializer, trainable=False, aggregation=first)

        self._mean = running("moving_mean", shape, zeros)
        self._variance = running("moving_variance", shape, ones)
        self._passes = running("passes", (), zeros)
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalizes `[..., N, units]` over N."""
        counted = _counted.get()
        if counted is None:
            return (x - self._mean) * tf.math.rsqrt(self._variance + _EPSILON) * self.gamma + self.beta
        weight = tf.cast(counted, x.dtype)[tf.newaxis]
        number = _over_replicas(tf.reduce_sum(weight))

        def mean_of(values: tf.Tensor) -> tf.Tensor:
            # As a product it takes one pass over the values, as does its gradient.
            return _over_replicas(tf.matmul(weight, values)) / tf.maximum(number, 1.0)

        mean = mean_of(x)
        centered = x - mean
        variance = mean_of(tf.square(centered))
        deviation, running = tf.sqrt(variance + _EPSILON), tf.sqrt(self._variance + _EPSILON)
        is_warm = self._passes >= WARM_UP
        scale = tf.where(is_warm, deviation / running, 1.0)
        shift = tf.where(is_warm, (mean - self._mean) / running, 0.0)
        scale = tf.stop_gradient(tf.clip_by_value(scale, 1.0 / _LARGEST_SCALE, _LARGEST_SCALE))
        shift = tf.stop_gradient(tf.clip_by_value(shift, -_LARGEST_SHIFT, _LARGEST_SHIFT))
        normalized = centered * (scale / deviation * self.gamma) + (shift * self.gamma + self.beta)
        with tf.control_dependencies([scale, shift]):
            is_one = tf.cast(number > 0.0, x.dtype)
            for average, new in ((self._mean, mean), (self._variance, variance)):
                average.assign_add((1.0 - _MOMENTUM) * is_one * (tf.stop_gradient(new) - average))
            self._passes.assign_add(is_one)
        return normalized


def _over_replicas(x: tf.Tensor) -> tf.Tensor:
    """Adds up over all replicas, with gradients."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
