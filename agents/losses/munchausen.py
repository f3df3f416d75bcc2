"""Munchausen reinforcement learning (Vieillard, Pietquin and Geist 2020, https://arxiv.org/abs/2007.14430).

The policy is pi = softmax(q / tau), with the target network's values q.  The reward gets a bonus, the scaled
log-policy alpha tau log pi(a|x) of the action taken, and targets bootstrap from the soft value of pi.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .n_step import NStep
from .q_learning import action_value
from .shapes import check_alike, check_same_shape


def soft_value(q: Any, temperature: float) -> tf.Tensor:
    """Computes sum_a pi(a) (q(a) - tau log pi(a)) = tau log sum_a exp(q(a) / tau): values `[..., A]` give `[...]`."""
    return temperature * tf.reduce_logsumexp(tf.convert_to_tensor(q) / temperature, axis=-1)


def munchausen_bonus(q: Any, action: Any, weight: float, temperature: float, clip: float) -> tf.Tensor:
    """Computes alpha times tau log pi(a|x), which is clipped to [-clip, 0].

    Args:
      q: `[..., A]`, values at the observation, the lowest where actions are not legal.
      action: integers `[...]`, the actions taken.
      weight: alpha.
      temperature: tau.
      clip: -l_0 in the paper, above 0.

    Returns:
      `[...]` in the dtype of `q`, through which no gradients flow.
    """
    scaled_log_policy = action_value(q, action) - soft_value(q, temperature)
    return tf.stop_gradient(weight * tf.clip_by_value(scaled_log_policy, -clip, 0.0))


def munchausen_steps(steps: NStep, bonus: Any, q_n: Any, temperature: float) -> tuple[NStep, tf.Tensor]:
    """Adds the bonus and the entropy of the policy to returns, with n steps as in Dopamine.

    With them, r + alpha tau log pi(a|x) + gamma sum_a pi(a|x') (q(x', a) - tau log pi(a|x')) is the return plus
    gamma sum_a pi(a|x') q(x', a).  Of n rewards, the first one gets the bonus, and only the last value is soft.

    Args:
      steps: `NStep` over `[B]`.
      bonus: `[B]`, from `munchausen_bonus`, of the actions at the first observations.
      q_n: `[B, A]`, the target network's values at the observations `steps.index`.
      temperature: tau.

    Returns:
      `NStep` with other returns, and the policy `[B, A]` at the observations `steps.index`; both without gradients.
    """
    q_n = tf.stop_gradient(tf.convert_to_tensor(q_n))
    returns, discount, bonus = (as_dtype(x, q_n.dtype) for x in (steps.returns, steps.discount, bonus))
    check_same_shape(returns=returns, bonus=bonus, q_n=q_n[:, 0])
    policy = tf.nn.softmax(q_n / temperature)
    entropy = soft_value(q_n, temperature) - expected_value(policy, q_n)
    # After a termination there is nothing to bootstrap from, and the value at the index may be anything.
    return steps._replace(returns=returns + bonus + tf.math.multiply_no_nan(entropy, discount)), policy


def expected_value(policy: Any, q: Any) -> tf.Tensor:
    """Computes sum_a pi(a|x) q(x, a): probabilities and values `[B, A]` give `[B]`."""
    check_alike(2, policy=policy, q=q)
    return tf.reduce_sum(policy * q, axis=-1)
