"""Distributional values as quantiles (Dabney et al. 2018, "Quantile regression", https://arxiv.org/abs/1710.10044).

A distribution is given by N values, of which the i-th estimates the quantile at (2 i - 1) / (2 N).
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_ranks, check_same_shape


def quantile_target(r_t: Any, discount_t: Any, quantiles: Any) -> tf.Tensor:
    """Computes r + gamma theta_j(x', a') (equation (13)).

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      quantiles: `[B, N]`, theta(x', a').

    Returns:
      `[B, N]` in the dtype of `quantiles`, through which no gradients flow.
    """
    quantiles = tf.convert_to_tensor(quantiles)
    r_t, discount_t = (as_dtype(tensor, quantiles.dtype) for tensor in (r_t, discount_t))
    check_ranks(1, r_t=r_t, discount_t=discount_t)
    check_same_shape(quantiles=quantiles[..., 0], r_t=r_t, discount_t=discount_t)
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    later = tf.math.multiply_no_nan(quantiles, tf.broadcast_to(discount_t[:, tf.newaxis], tf.shape(quantiles)))
    return tf.stop_gradient(r_t[:, tf.newaxis] + later)


def quantile_huber_loss(
    quantiles: Any, target: Any, valid: Any, huber: float | None = 1.0, fractions: Any = None
) -> tf.Tensor:
    """Computes sum_i mean_j |tau_i - (u_ij < 0)| L(u_ij) / huber with u_ij = target_j - theta_i (equation (10)).

    With sampled fractions tau_i this is the loss of implicit quantile networks (Dabney et al. 2018,
    https://arxiv.org/abs/1806.06923, equation (3)).

    Args:
      quantiles: `[B, N]`, theta(x, a), through which gradients flow.
      target: `[B, M]`, from `quantile_target`.
      valid: bool `[B]`; for windows `NStep.valid`.
      huber: kappa, |u| beyond which L is linear; None for L(u) = |u|, the loss without smoothing.
      fractions: `[B, N]`, tau; None for (2 i - 1) / (2 N).

    Returns:
      `[B]` in the dtype of `quantiles`, 0 where the target is not valid.
    """
    quantiles, valid = tf.convert_to_tensor(quantiles), tf.convert_to_tensor(valid)
    dtype = quantiles.dtype
    target = tf.stop_gradient(as_dtype(target, dtype))
    check_ranks(2, quantiles=quantiles, target=target)
    check_same_shape(quantiles=quantiles[..., 0], target=target[..., 0], valid=valid)
    if fractions is None:
        number = quantiles.shape[1]
        tau = (2 * tf.range(number, dtype=dtype)[tf.newaxis] + 1) / (2 * number)
    else:
        tau = tf.stop_gradient(as_dtype(fractions, dtype))
        check_same_shape(quantiles=quantiles, fractions=tau)
    error = target[:, tf.newaxis, :] - quantiles[:, :, tf.newaxis]
    size = tf.abs(error)
    if huber is None:
        loss = size
    else:
        loss = tf.where(size <= huber, tf.square(error) / (2 * huber), size - huber / 2)
    asymmetric = tf.abs(tau[:, :, tf.newaxis] - tf.cast(error < 0, dtype))
    total = tf.reduce_sum(tf.reduce_mean(asymmetric * loss, axis=2), axis=1)
    return tf.where(valid, total, tf.zeros_like(total))
