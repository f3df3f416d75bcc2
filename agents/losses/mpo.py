"""Losses of MPO with decoupled constraints on mean and standard deviation (Abdolmaleki et al. 2018).

The E-step is that of https://arxiv.org/abs/1806.06920, the M-step that of https://arxiv.org/abs/1812.02256, both in the
form of Acme (Hoffman et al. 2020, appendix).

N actions are sampled from the target policy at each of B observations.  Dual variables (a temperature, and a multiplier
for each constraint on a KL divergence) are positive.  Every loss has one element for each observation; the learner
averages over them.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, check_ranks, check_same_shape


class Weights(NamedTuple):
    """The improved policy: weights of sampled actions, and the loss of the temperature that shapes them."""

    weights: tf.Tensor
    """`[N, B]`, which add up to 1 over the actions; no gradients flow through them."""
    temperature_loss: tf.Tensor
    """`[B]`, through which gradients flow to the temperature."""


class Improvement(NamedTuple):
    """The policy's losses, and its divergence from the target policy."""

    policy_loss: tf.Tensor
    """`[B]`, minus the weighted log-likelihood of the actions."""
    kl_mean: tf.Tensor
    """`[B, D]`, KL divergence of each component due to the mean."""
    kl_stddev: tf.Tensor
    """`[B, D]`, KL divergence of each component due to the standard deviation."""


def improved_weights(values: Any, temperature: Any, epsilon: float) -> Weights:
    """Computes softmax(Q / eta) over actions, and eta (epsilon + log mean exp(Q / eta)) (equations (4) and (6)).

    Args:
      values: `[N, B]`, values of the sampled actions, or other costs and rewards, through which no gradients flow.
      temperature: eta, a scalar.
      epsilon: bound of the KL divergence of the improved policy from the target policy.
    """
    values = tf.stop_gradient(tf.convert_to_tensor(values))
    check_ranks(2, values=values)
    temperature = as_dtype(temperature, values.dtype)
    tempered = values / temperature
    number = as_dtype(tf.shape(values)[0], values.dtype)
    log_mean = tf.reduce_logsumexp(tempered, axis=0) - tf.math.log(number)
    weights = tf.stop_gradient(tf.nn.softmax(tempered, axis=0))
    return Weights(weights, temperature * (as_dtype(epsilon, values.dtype) + log_mean))


def out_of_bounds_cost(actions: Any) -> tf.Tensor:
    """Returns minus the distance of actions `[N, B, D]` from the cube [-1, 1]^D, `[N, B]` (Acme's penalty)."""
    actions = tf.convert_to_tensor(actions)
    return -tf.norm(actions - tf.clip_by_value(actions, -1.0, 1.0), axis=-1)


def decoupled_improvement(
    mean: Any, log_std: Any, target_mean: Any, target_log_std: Any, actions: Any, weights: Any
) -> Improvement:
    """Fits mean and standard deviation apart, each with the target's value of the other (1812.02256, section 4.2.1).

    Args:
      mean: `[B, D]`, of the policy, through which gradients flow.
      log_std: `[B, D]`, logarithm of its standard deviation, through which gradients flow.
      target_mean: `[B, D]`, of the target policy.
      target_log_std: `[B, D]`, likewise.
      actions: `[N, B, D]`, sampled from the target policy.
      weights: `[N, B]`, of the actions.
    """
    mean = tf.convert_to_tensor(mean)
    log_std, target_mean, target_log_std, actions, weights = (
        as_dtype(x, mean.dtype) for x in (log_std, target_mean, target_log_std, actions, weights)
    )
    check_alike(2, mean=mean, log_std=log_std, target_mean=target_mean, target_log_std=target_log_std)
    check_same_shape(actions=actions[..., 0], weights=weights)
    target_mean, target_log_std, actions = map(tf.stop_gradient, (target_mean, target_log_std, actions))

    def likelihood(center: tf.Tensor, log_scale: tf.Tensor) -> tf.Tensor:
        # Without the constant, which has no gradient.
        squares = tf.square((actions - center) * tf.exp(-log_scale))
        return tf.reduce_sum(weights * tf.reduce_sum(-squares / 2 - log_scale, axis=-1), axis=0)

    loss = -likelihood(mean, target_log_std) - likelihood(target_mean, log_std)
    kl_mean = tf.square((target_mean - mean) * tf.exp(-target_log_std)) / 2
    kl_stddev = log_std - target_log_std + (tf.exp(2 * (target_log_std - log_std)) - 1) / 2
    return Improvement(loss, kl_mean, kl_stddev)


def kl_penalty(kl: Any, alpha: Any) -> tf.Tensor:
    """Returns sum_d alpha_d KL_d `[B]` for divergences `[B, D]`; no gradients flow through the multipliers `[D]`."""
    return tf.reduce_sum(tf.stop_gradient(alpha) * kl, axis=-1)


def multiplier_loss(kl: Any, alpha: Any, epsilon: float) -> tf.Tensor:
    """Returns sum_d alpha_d (epsilon - KL_d) `[B]`, which raises a multiplier while its constraint is violated.

    Args:
      kl: `[B, D]`, through which no gradients flow.
      alpha: `[D]`, the multipliers.
      epsilon: bound of each divergence.
    """
    return tf.reduce_sum(alpha * (epsilon - tf.stop_gradient(kl)), axis=-1)
