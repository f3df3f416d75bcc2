"""Prioritized replay: priorities of sequences, and importance weights that correct the sampling bias."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_ranks, check_same_shape


def mixed_priority(delta_t: Any, valid_t: Any, eta: float = 0.9) -> tf.Tensor:
    """Computes p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t| (Kapturowski et al. 2019, section 2.3).

    Args:
      delta_t: `[T, B]`, TD errors.
      valid_t: bool `[T, B]`, the steps over which maximum and mean are taken.
      eta: weight of the maximum, 0..1.

    Returns:
      `[B]`, through which no gradients flow; 0 for a sequence without valid steps, so that it is not sampled again.
    """
    delta_t, valid_t = tf.convert_to_tensor(delta_t), tf.convert_to_tensor(valid_t)
    check_ranks(2, delta_t=delta_t, valid_t=valid_t)
    check_same_shape(delta_t=delta_t, valid_t=valid_t)
    size_t = tf.where(valid_t, tf.abs(delta_t), tf.zeros_like(delta_t))
    number = tf.reduce_sum(tf.cast(valid_t, delta_t.dtype), axis=0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(size_t, axis=0), number)
    return tf.stop_gradient(eta * tf.reduce_max(size_t, axis=0) + (1 - eta) * mean)


def importance_weights(
    probability: Any,
    table_size: Any,
    beta: Any,
    largest: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.Tensor:
    """Computes w = (1 / (N P))^beta, optionally divided by the largest in the batch (Schaul et al. 2016, section 3.4).

    With beta = 1 and no division, the weighted mean over the sampled items is an unbiased estimate of the mean over all
    items.  So the weights have the mean 1 whatever a table's priorities and size are, and one divisor for items
    of several tables keeps the share that each of them has in the batch, which a divisor for each would change.

    Args:
      probability: `[B]`, P, the probability with which each item was sampled among all items.
      table_size: integers `[B]` or a scalar, N, the number of items sampled from.
      beta: how much of the bias is corrected, 0..1; a number or a scalar tensor.
      largest: returns the largest weight over all replicas, such as `replicas.largest_over_replicas`; None for no
        division.  The largest weight of a single replica would make the update depend on the number of replicas.

    Returns:
      `[B]` in the dtype of `probability`, through which no gradients flow.
    """
    probability = tf.convert_to_tensor(probability)
    check_ranks(1, probability=probability)
    expected = tf.cast(table_size, probability.dtype) * probability
    check_same_shape(probability=probability, table_size=expected)
    # A probability rounded to 0 would make its weight infinite and the whole batch NaN.
    expected = tf.maximum(expected, expected.dtype.as_numpy_dtype(np.finfo(expected.dtype.as_numpy_dtype).tiny))
    weights = tf.pow(expected, -as_dtype(beta, probability.dtype))
    return tf.stop_gradient(weights if largest is None else weights / largest(weights))
