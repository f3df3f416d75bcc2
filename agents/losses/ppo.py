"""Elementwise clipped losses of PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

Each loss returns `[T, B]`, 0 where the transition is not valid.  The learner adds up the elements and divides by the
size of the global minibatch.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, where_valid

_LARGEST_LOG_RATIO = 20.0
"""Far beyond any clip range.  The exponential of a much larger value overflows, and its gradient is NaN."""


def log_ratio(log_prob_t: Any, behavior_log_prob_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns log pi(a_t|x_t) - log mu(a_t|x_t), and 0 where the transition is not valid and the ratio meaningless.

    Args:
      log_prob_t: `[T, B]`, log pi(a_t|x_t) of the current policy.
      behavior_log_prob_t: `[T, B]`, log mu(a_t|x_t) of the behavior policy.
      valid_t: bool `[T, B]`.

    Returns:
      `[T, B]`.
    """
    log_prob_t = tf.convert_to_tensor(log_prob_t)
    behavior_log_prob_t = tf.cast(behavior_log_prob_t, log_prob_t.dtype)
    check_alike(2, log_prob_t=log_prob_t, behavior_log_prob_t=behavior_log_prob_t, valid_t=valid_t)
    return where_valid(valid_t, log_prob_t - behavior_log_prob_t)


def clipped_surrogate_loss(log_ratio_t: Any, advantage_t: Any, valid_t: Any, clip: Any) -> tf.Tensor:
    """Returns -min(ratio A, clip(ratio, 1 - clip, 1 + clip) A) (equation (7)).

    Args:
      log_ratio_t: `[T, B]`, from `log_ratio`.
      advantage_t: `[T, B]`, through which no gradients flow.
      valid_t: bool `[T, B]`.
      clip: epsilon, a number or a scalar tensor.

    Returns:
      `[T, B]`.
    """
    log_ratio_t = tf.convert_to_tensor(log_ratio_t)
    check_alike(2, log_ratio_t=log_ratio_t, advantage_t=advantage_t, valid_t=valid_t)
    advantage_t, clip = tf.stop_gradient(advantage_t), as_dtype(clip, log_ratio_t.dtype)
    ratio_t = tf.exp(tf.minimum(log_ratio_t, as_dtype(_LARGEST_LOG_RATIO, log_ratio_t.dtype)))
    clipped_t = tf.clip_by_value(ratio_t, 1 - clip, 1 + clip)
    return where_valid(valid_t, -tf.minimum(ratio_t * advantage_t, clipped_t * advantage_t))


def clipped_value_loss(v_t: Any, old_v_t: Any, target_t: Any, valid_t: Any, clip: Any) -> tf.Tensor:
    """Returns max((V - target)^2, (V_clipped - target)^2) / 2.

    V_clipped is V clipped to within `clip` of the value before the iteration.  It is not in the paper, but in the
    implementation that its authors published (https://github.com/openai/baselines, ppo2).

    Args:
      v_t: `[T, B]`, the value function's output.
      old_v_t: `[T, B]`, the value before the iteration, through which no gradients flow.
      target_t: `[T, B]`, value targets, through which no gradients flow.
      valid_t: bool `[T, B]`.
      clip: a number or a scalar tensor.

    Returns:
      `[T, B]`.
    """
    v_t = tf.convert_to_tensor(v_t)
    check_alike(2, v_t=v_t, old_v_t=old_v_t, target_t=target_t, valid_t=valid_t)
    old_v_t, target_t, clip = tf.stop_gradient(old_v_t), tf.stop_gradient(target_t), as_dtype(clip, v_t.dtype)
    clipped_t = old_v_t + tf.clip_by_value(v_t - old_v_t, -clip, clip)
    return where_valid(valid_t, tf.maximum(tf.square(v_t - target_t), tf.square(clipped_t - target_t)) / 2)


def approximate_kl(log_ratio_t: Any) -> tf.Tensor:
    """Returns ratio - 1 - log ratio, a nonnegative estimate whose mean over actions of mu is KL(mu || pi).

    Schulman 2020, "Approximating KL divergence", http://joschu.net/blog/kl-approx.html, estimator k3.

    Args:
      log_ratio_t: `[T, B]`, from `log_ratio`.

    Returns:
      `[T, B]`.
    """
    return tf.math.expm1(log_ratio_t) - log_ratio_t
