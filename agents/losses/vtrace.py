"""V-trace: off-policy corrected value targets and advantages (Espeholt et al. 2018, section 4.1)."""

from typing import Any, NamedTuple

import tensorflow as tf

from .recurrence import backward_sum
from .shapes import check_ranks, check_same_shape


class VTrace(NamedTuple):
    """Value targets and advantages, through which no gradients flow."""

    vs: tf.Tensor
    """`[T, B]`, the value targets v_s."""
    advantages: tf.Tensor
    """`[T, B]`, rho_s (r_s + gamma v_{s+1} - V(x_s)), the weights of grad log pi in the policy gradient."""
    td_errors: tf.Tensor
    """`[T, B]`, the advantages without their weight rho_s, for losses that have the ratio in themselves."""


def vtrace(
    values: Any,
    r_t: Any,
    discount_t: Any,
    log_rho_t: Any,
    valid_t: Any,
    clip_rho: float | None = 1.0,
    clip_c: float | None = 1.0,
    clip_policy_gradient_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """Computes V-trace targets and policy-gradient advantages.

    With rho_t = min(clip_rho, ratio_t), c_t = lambda min(clip_c, ratio_t), and
    delta_t V = rho_t (r_t + gamma_t V(x_{t+1}) - V(x_t)), equation (1) is, within an episode,

        v_s = V(x_s) + sum_{t >= s} (prod_{i=s}^{t-1} gamma_i c_i) delta_t V

    (remark 2 for lambda), computed as v_s - V(x_s) = delta_s V + gamma_s c_s (v_{s+1} - V(x_{s+1})) (remark 1).  Where
    a transition is not valid, the target is V(x_t), the advantage is 0, and the sum ends.

    Args:
      values: `[T+1, B]`, V(x_0) .. V(x_T).
      r_t: `[T, B]`, the reward that followed the action at t.
      discount_t: `[T, B]`, gamma times the environment's discount that followed.
      log_rho_t: `[T, B]`, log pi(a_t|x_t) - log mu(a_t|x_t), not clipped.
      valid_t: bool `[T, B]`, from `valid_transitions`.
      clip_rho: rho-bar of the targets; None for no clipping.
      clip_c: c-bar; None for no clipping.
      clip_policy_gradient_rho: clipping of the ratio that weights the advantages; None for no clipping.
      lambda_: 0..1; smaller values shorten the traces.

    Returns:
      `VTrace`, in the dtype of `values`.

    Raises:
      ValueError: if shapes do not match.
    """
    values = tf.convert_to_tensor(values)
    r_t, discount_t, log_rho_t = (tf.cast(tensor, values.dtype) for tensor in (r_t, discount_t, log_rho_t))
    valid_t = tf.convert_to_tensor(valid_t)
    check_ranks(2, values=values, r_t=r_t, discount_t=discount_t, log_rho_t=log_rho_t, valid_t=valid_t)
    v_t, v_tp1 = values[:-1], values[1:]
    check_same_shape(v_t=v_t, r_t=r_t, discount_t=discount_t, log_rho_t=log_rho_t, valid_t=valid_t)

    rho_t = tf.exp(log_rho_t)
    zeros = tf.zeros_like(v_t)
    # Select instead of multiplying by 0: the ratio of an invalid transition may be infinite.
    delta_t = tf.where(valid_t, _clip(rho_t, clip_rho) * (r_t + discount_t * v_tp1 - v_t), zeros)
    decay_t = tf.where(valid_t, discount_t * lambda_ * _clip(rho_t, clip_c), zeros)

    vs_t = v_t + backward_sum(delta_t, decay_t)
    vs_tp1 = tf.concat([vs_t[1:], v_tp1[-1:]], axis=0)
    td_errors_t = tf.where(valid_t, r_t + discount_t * vs_tp1 - v_t, zeros)
    advantages_t = _clip(rho_t, clip_policy_gradient_rho) * td_errors_t
    return VTrace(
        vs=tf.stop_gradient(vs_t),
        advantages=tf.stop_gradient(tf.where(valid_t, advantages_t, zeros)),
        td_errors=tf.stop_gradient(td_errors_t),
    )


def _clip(rho_t: tf.Tensor, largest: float | None) -> tf.Tensor:
    return rho_t if largest is None else tf.minimum(rho_t, tf.constant(largest, rho_t.dtype))
