"""Distributional values on a fixed support of N atoms (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887).

A distribution is given by N logits or probabilities, of the values `support`, which are evenly spaced.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_ranks, check_same_shape


def support(low: float, high: float, atoms: int, dtype: Any = tf.float32) -> tf.Tensor:
    """Returns the values of the atoms, `[N]` from `low` to `high`."""
    return tf.linspace(as_dtype(low, dtype), as_dtype(high, dtype), atoms)


def mean_value(logits: Any, values: Any) -> tf.Tensor:
    """Returns the mean of distributions: logits `[..., N]` over `values` `[N]` give `[...]`."""
    return tf.reduce_sum(tf.nn.softmax(logits) * values, axis=-1)


def projected_target(r_t: Any, discount_t: Any, probabilities: Any, values: Any) -> tf.Tensor:
    """Projects the distribution of r + gamma Z(x', a') onto the support (equation (7), algorithm 1).

    An atom beyond the support is moved to its end; one between two atoms of the support is divided among them.

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      probabilities: `[B, N]`, those of Z(x', a').
      values: `[N]`, from `support`; at least 2.

    Returns:
      `[B, N]`, probabilities in the dtype of `probabilities`, through which no gradients flow.
    """
    probabilities = tf.convert_to_tensor(probabilities)
    dtype = probabilities.dtype
    r_t, discount_t, values = (as_dtype(tensor, dtype) for tensor in (r_t, discount_t, values))
    check_ranks(1, r_t=r_t, discount_t=discount_t, values=values)
    check_same_shape(probabilities=probabilities[..., 0], r_t=r_t, discount_t=discount_t)
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    one = tf.one_hot(0, tf.shape(values)[0], dtype=dtype)
    probabilities = tf.where(discount_t[:, tf.newaxis] == 0, one, probabilities)
    moved = r_t[:, tf.newaxis] + discount_t[:, tf.newaxis] * values
    moved = tf.clip_by_value(moved, values[0], values[-1])
    distance = tf.abs(moved[:, tf.newaxis, :] - values[:, tf.newaxis]) / (values[1] - values[0])
    shares = tf.maximum(1 - distance, 0)
    return tf.stop_gradient(tf.linalg.matvec(shares, probabilities))


def categorical_loss(logits: Any, target: Any, valid: Any) -> tf.Tensor:
    """Returns the cross-entropy of a distribution and its target (section 4.1).

    Args:
      logits: `[B, N]`, through which gradients flow.
      target: `[B, N]`, probabilities from `projected_target`.
      valid: bool `[B]`; for windows `NStep.valid`.

    Returns:
      `[B]` in the dtype of `logits`, 0 where the target is not valid.
    """
    logits, valid = tf.convert_to_tensor(logits), tf.convert_to_tensor(valid)
    target = tf.stop_gradient(as_dtype(target, logits.dtype))
    check_ranks(2, logits=logits, target=target)
    check_same_shape(logits=logits, target=target)
    check_same_shape(logits=logits[..., 0], valid=valid)
    loss = tf.nn.softmax_cross_entropy_with_logits(target, logits)
    return tf.where(valid, loss, tf.zeros_like(loss))
