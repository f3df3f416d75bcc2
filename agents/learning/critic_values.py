"""The values of several critics: the value of a target, that of the policy, and their loss."""

from typing import Any

import tensorflow as tf

from ...networks import stateless_random
from ...networks.network_settings import CriticSettings
from ...networks.random_streams import Stream
from ..losses.quantile import quantile_huber_loss
from ..losses.shapes import check_ranks
from ..losses.soft_actor_critic import critic_loss


def target_value(settings: CriticSettings, q: tf.Tensor, seed: Any) -> tf.Tensor:
    """Returns the values of which targets are made.

    Args:
      settings: see `CriticSettings`.
      q: `[K, ...]`, values of K critics; or, with quantiles, `[K, B, M]`.
      seed: int64 `[2]`, from which the critics are sampled whose lowest value it is, the same for a whole batch (Chen
        et al. 2021, https://arxiv.org/abs/2101.05982, algorithm 1).

    Returns:
      `[...]`, the lowest of the critics' values.  With quantiles, `[B, K (M - dropped)]`, those of all critics but for
      the highest (Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269, equation (10)), in ascending order.
    """
    if settings.quantiles is not None:
        check_ranks(3, q=q)
        pooled = tf.sort(tf.reshape(tf.transpose(q, (1, 0, 2)), (-1, q.shape[0] * q.shape[2])), axis=-1)
        return pooled[:, : q.shape[0] * (q.shape[2] - settings.dropped)]
    if settings.minimum_of not in (None, settings.number):
        # The highest of random numbers are at a random subset of the critics.
        order = stateless_random.uniform(seed, Stream.CRITIC_SUBSET, [0], (settings.number,), tf.float64)[0]
        q = tf.gather(q, tf.math.top_k(order, settings.minimum_of).indices, axis=0)
    return tf.reduce_min(q, axis=0)


def mean_values(settings: CriticSettings, q: tf.Tensor) -> tf.Tensor:
    """Returns the critics' values `[K, ...]`, of quantiles `[K, ..., M]` the means."""
    return q if settings.quantiles is None else tf.reduce_mean(q, axis=-1)


def critics_loss(settings: CriticSettings, q_t: tf.Tensor, target_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the critics' losses.

    Args:
      settings: see `CriticSettings`.
      q_t: `[K, B]`, values of the actions taken; or quantiles `[K, B, M]`, whose loss is the mean over them of the
        quantile Huber loss (Kuznetsov et al. 2020, equation (12)).
      target_t: `[B]`, or `[B, M']`.
      valid_t: bool `[B]`.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    if settings.quantiles is None:
        return critic_loss(q_t, target_t, valid_t)
    each = [quantile_huber_loss(quantiles, target_t, valid_t) for quantiles in tf.unstack(q_t)]
    return tf.add_n(each) / settings.quantiles
