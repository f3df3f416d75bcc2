"""Normalization of rewards by the running standard deviation of discounted returns."""

from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from ...data import Sample
from ...errors import CallboardError
from ...networks.normalization import RunningNormalizer
from ...transitions import valid_transitions
from ..losses.prioritization import importance_weights
from ..settings.shared_settings import LARGEST_REWARD

_MEMORY = 1_000_000


class RewardNormalizer(RunningNormalizer):
    """Statistics of discounted returns, by whose standard deviation rewards are divided.

    A return is the discounted sum of an episode's rewards so far, as in OpenAI Baselines' `VecNormalize`, whose
    deviation stands for that of the sum of the rewards to come.  There all returns of a run weigh the same; here those
    of the newest million transitions, about, so that the scale is that of what the policy does now.
    """

    def __init__(self) -> None:
        super().__init__(dm_specs.Array((), np.float32), memory=_MEMORY)

    def __call__(self, reward: Any) -> tf.Tensor:
        """Normalizes rewards `[...]`."""
        return tf.clip_by_value(self.divide_by_deviation(reward), -LARGEST_REWARD, LARGEST_REWARD)

    def deviations(self, batch_size: Any) -> tf.Tensor:
        """Returns the standard deviation of returns `[B]`, the same for all; 1 before the first update."""
        return 1.0 / self.divide_by_deviation(tf.ones((batch_size,)))

    def normalized(self, sample: Sample) -> Sample:
        """Updates the statistics with a replica's share of a batch from replay, and normalizes its rewards.

        Items that were sampled more often than others, by their priority, count less, so that the statistics are those
        of all items.

        Raises:
          CallboardError: the replay keeps no returns.
        """
        if isinstance(sample.discounted_return, tuple):
            raise CallboardError(
                "normalize_rewards needs the discounted returns that replay keeps, and this replay keeps none: give it "
                "returns_discount=returns_discount(agent), of callboard.agents.learning.reward_normalizer, or set "
                "agent.normalize_rewards to false"
            )
        record, info = sample.record, sample.info
        weight = tf.cast(valid_transitions(record.first, record.last, record.discount), tf.float64)
        if info:
            weight *= tf.cast(importance_weights(info.probability, info.items, 1.0), tf.float64)
        self.update(sample.discounted_return, weight=weight)
        return sample._replace(record=record._replace(reward=self(record.reward)))


def with_normalized_rewards(record: Any, deviation: Any) -> Any:
    """Returns a `Record` of arrays with the rewards that `RewardNormalizer` would give, for initial priorities.

    Args:
      record: rewards `[T, B]`.
      deviation: `[T + 1, B]`, deviations of returns that the acting policy recorded; `()` for rewards as they are.
    """
    if isinstance(deviation, tuple):
        return record
    return record._replace(reward=np.clip(record.reward / deviation[:-1], -LARGEST_REWARD, LARGEST_REWARD))


def make_reward_normalizer(agent: Any) -> RewardNormalizer | None:
    """Creates the normalizer of an agent with `RewardSettings`; None if it does not normalize rewards."""
    return RewardNormalizer() if agent.normalize_rewards else None


def returns_discount(agent: Any) -> float | None:
    """Returns γ of the discounted returns that the replay of an agent keeps; None if it keeps none.

    They are for the normalization of rewards, and for the range of distributions of values.
    """
    return normalization_discount(agent) if agent.normalize_rewards or follows_returns(agent) else None


def follows_returns(agent: Any) -> bool:
    """Returns whether the range of a distribution of values follows returns, see `value_range.ValueRange`."""
    if not hasattr(agent, "value_min") or getattr(agent, "distribution", "categorical") != "categorical":
        return False
    return None in (agent.value_min, agent.value_max)


def normalization_discount(agent: Any) -> float:
    """Returns γ of the returns by which the rewards of an agent with `RewardSettings` are, or would be, normalized."""
    return agent.discount if agent.normalization_discount is None else agent.normalization_discount
