"""CQL's penalty: how far the values of all actions lie above that of the recorded one (Kumar et al. 2020).

https://arxiv.org/abs/2006.04779, CQL(H).
"""

import math
from typing import Any

import tensorflow as tf

from ...networks.actions.legal_actions import mask_illegal
from .dtypes import as_dtype
from .shapes import check_alike, check_ranks, check_same_shape, where_valid


def conservative_gap(q_sampled_t: Any, log_density_t: Any, q_t: Any, valid_t: Any) -> tf.Tensor:
    """Computes log mean_i exp(Q(x, a_i) - log mu_i(a_i)) - Q(x, a), for actions a_i sampled from densities mu_i.

    The first term estimates the logarithm of the integral of exp Q(x, .) over all actions by importance sampling
    (equation (4) and appendix F).

    Args:
      q_sampled_t: `[B, N]`, values of sampled actions.
      log_density_t: `[B, N]`, logarithm of the density that each was sampled from, through which no gradients flow.
      q_t: `[B]`, value of the recorded action.
      valid_t: bool `[B]`.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    q_t, valid_t = tf.convert_to_tensor(q_t), tf.convert_to_tensor(valid_t)
    q_sampled_t, log_density_t = as_dtype(q_sampled_t, q_t.dtype), as_dtype(log_density_t, q_t.dtype)
    check_alike(2, q_sampled_t=q_sampled_t, log_density_t=log_density_t)
    check_ranks(1, q_t=q_t, valid_t=valid_t)
    check_same_shape(q_sampled_t=q_sampled_t[:, 0], q_t=q_t, valid_t=valid_t)
    summed = tf.reduce_logsumexp(q_sampled_t - tf.stop_gradient(log_density_t), axis=-1)
    return where_valid(valid_t, summed - math.log(q_sampled_t.shape[-1]) - q_t)


def discrete_conservative_gap(q_all_t: Any, q_t: Any, valid_t: Any, legal_t: Any = None) -> tf.Tensor:
    """Computes log sum_a exp Q(x, a) - Q(x, a_t) over the legal actions (equation (4)).

    Args:
      q_all_t: `[B, A]`, values of all actions.
      q_t: `[B]`, value of the recorded action.
      valid_t: bool `[B]`.
      legal_t: bool `[B, A]`, which actions are legal; None if all are.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    q_all_t, valid_t = tf.convert_to_tensor(q_all_t), tf.convert_to_tensor(valid_t)
    q_t = as_dtype(q_t, q_all_t.dtype)
    check_ranks(2, q_all_t=q_all_t)
    check_alike(1, first=q_all_t[:, 0], q_t=q_t, valid_t=valid_t)
    return where_valid(valid_t, tf.reduce_logsumexp(mask_illegal(q_all_t, legal_t), axis=-1) - q_t)
