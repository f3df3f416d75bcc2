"""The support of distributions of values, from the returns that were seen where it is not given."""

from typing import Any

import tensorflow as tf

from ...data import Sample
from ...errors import CallboardError
from ...transitions import valid_transitions
from ..losses.categorical import support
from ..losses.replicas import largest_over_replicas
from ..losses.rewards import learning_reward
from .reward_normalizer import RewardNormalizer, follows_returns, normalization_discount

_GROWTH = 1.5
"""How far an end moves beyond the return that it did not reach."""
_MARGIN = 0.05
"""Part of the width by which the support exceeds its ends, so that a return that is often seen is inside."""


class ValueRange(tf.Module):
    """The lowest and the highest value of a categorical distribution: those given, or else those of the returns seen.

    An end that is not given follows the rewards of batches and their discounted returns, `Sample.discounted_return`:
    where one lies beyond the end, the end moves to 1.5 times that return, and so moves few times in a run.  It never
    follows predictions, which it bounds.  The ends are part of the weights.

    Args:
      agent: has `value_min` and `value_max`, the settings of rewards and the discount.
      returns: the agent's statistics of returns, by which rewards are normalized; None if they are not.
    """

    def __init__(self, agent: Any, returns: RewardNormalizer | None = None):
        super().__init__()
        self._agent = agent
        self._returns = returns
        self._given = agent.value_min, agent.value_max

        def variable(name: str) -> tf.Variable:
            # All replicas assign the same value, so the first replica's is kept.
            return tf.Variable(
                0.0,
                trainable=False,
                dtype=tf.float64,
                name=name,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

        if follows_returns(agent):
            self._seen = variable("lowest_return"), variable("highest_return")

    def support(self, atoms: int, dtype: Any = tf.float32) -> tf.Tensor:
        """Returns the values of the atoms, `[atoms]`; from -1 to 1 before a return other than 0 was seen."""
        if None not in self._given:
            return support(*self._given, atoms, dtype)
        low, high = (end if given is None else given for end, given in zip(self._seen, self._given, strict=True))
        low, high = tf.cast(low, tf.float64), tf.cast(high, tf.float64)
        margin = tf.where(high > low, _MARGIN * (high - low), 1.0)
        low, high = (
            low if self._given[0] is not None else tf.minimum(low, high) - margin,
            high if self._given[1] is not None else tf.maximum(low, high) + margin,
        )
        return support(tf.cast(low, dtype), tf.cast(high, dtype), atoms, dtype)

    def update(self, sample: Sample) -> None:
        """Widens the range to what a replica's share of a batch shows; does nothing if both ends are given."""
        if None not in self._given or isinstance(sample.discounted_return, tuple):
            return
        record, agent = sample.record, self._agent
        returns = tf.convert_to_tensor(sample.discounted_return)
        if self._returns is not None:
            returns = self._returns.divide_by_deviation(returns)
        returns = learning_reward(returns, agent.reward_scale, _bounds_of_returns(agent))
        reward = learning_reward(tf.convert_to_tensor(record.reward), agent.reward_scale, agent.reward_clip)
        seen = tf.stack([tf.cast(returns, tf.float64), tf.cast(reward, tf.float64)])
        valid = valid_transitions(record.first, record.last, record.discount)
        seen = tf.where(valid & tf.math.is_finite(seen), seen, 0.0)
        low, high = self._seen
        lowest, highest = -largest_over_replicas(-seen), largest_over_replicas(seen)
        low.assign(tf.where(lowest < low, _GROWTH * lowest, low))
        high.assign(tf.where(highest > high, _GROWTH * highest, high))


def check_support(agent: Any) -> None:
    """Checks the support of an agent's distributions.

    Raises:
      CallboardError: it has a single atom, its ends are in the wrong order, or the returns seen are not its values.
    """
    if agent.atoms < 2:
        raise CallboardError(f"a distribution needs several values: set agent.atoms to at least 2, not {agent.atoms}")
    if getattr(agent, "distribution", "categorical") != "categorical":
        return
    low, high = agent.value_min, agent.value_max
    if low is not None and high is not None and low >= high:
        raise CallboardError(
            f"agent.value_min = {low:g} must be below agent.value_max = {high:g}: they are the range of discounted "
            "returns; or leave both out"
        )
    if follows_returns(agent) and agent.normalize_rewards and normalization_discount(agent) != agent.discount:
        raise CallboardError(
            "the range of values follows returns with agent.discount, and agent.normalization_discount is another: "
            "leave it out, or give agent.value_min and agent.value_max"
        )


def _bounds_of_returns(agent: Any) -> tuple[float, float] | None:
    """Returns between which values the discounted returns of clipped rewards are."""
    clip = agent.reward_clip
    if clip is None or agent.discount == 1:
        return None
    low, high = clip if isinstance(clip, tuple) else (-clip, clip)
    return min(low, 0.0) / (1 - agent.discount), max(high, 0.0) / (1 - agent.discount)
