"""Estimates of a policy's value from episodes of another policy, by importance sampling (Precup et al. 2000)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_RESAMPLES = 200


class ValueEstimate(NamedTuple):
    """An estimate of the mean discounted return of episodes."""

    value: float
    error: float
    """Standard error over the episodes; what a model or its assumptions get wrong is not in it."""
    effective_episodes: float
    """Number of episodes that the estimate rests on: (sum of weights)^2 / sum of squared weights at their ends."""


def importance_sampling(
    rewards: Sequence[np.ndarray],
    log_ratios: Sequence[np.ndarray],
    discount: float,
    weighted: bool = True,
    seed: int = 0,
) -> ValueEstimate:
    """Estimates the value by importance sampling per decision.

        V = sum_t gamma^t  mean_i(rho_i,t r_i,t),  rho_i,t = prod_{s <= t} pi(a_s|x_s) / mu(a_s|x_s)

    Weighted, each mean is divided by that of the ratios, which has a small bias and far less variance.  An episode that
    has ended keeps its last ratio.

    Args:
      rewards: the rewards `[T_i]` of each episode.
      log_ratios: log pi(a_t|x_t) - log mu(a_t|x_t) `[T_i]` of each episode, of the policy pi that is evaluated and the
        policy mu that acted.
      discount: gamma.
      weighted: whether ratios are divided by their mean.
      seed: of the bootstrap over episodes, from which the error is.

    Raises:
      ValueError: there are no episodes, or lengths do not match.
    """
    if not len(rewards) or any(one.shape != other.shape for one, other in zip(rewards, log_ratios, strict=True)):
        raise ValueError("rewards and log_ratios need the same, non-empty episodes")
    longest = max(map(len, rewards))
    reward, log_ratio = np.zeros((2, len(rewards), longest))
    for index, (one, other) in enumerate(zip(rewards, log_ratios, strict=True)):
        reward[index, : len(one)], log_ratio[index, : len(one)] = one, other
    with np.errstate(over="ignore"):
        ratio = np.exp(np.cumsum(log_ratio, axis=1))
    gained = ratio * reward * discount ** np.arange(longest)

    def value(chosen: np.ndarray) -> float:
        means = gained[chosen].mean(axis=0)
        if weighted:
            scale = ratio[chosen].mean(axis=0)
            means = np.divide(means, scale, out=np.zeros(longest), where=scale > 0)
        return float(means.sum())

    generator = np.random.default_rng(seed)
    resampled = [value(generator.integers(len(rewards), size=len(rewards))) for _ in range(_RESAMPLES)]
    last = ratio[:, -1]
    effective = last.sum() ** 2 / max(np.square(last).sum(), np.finfo(float).tiny)
    return ValueEstimate(value(np.arange(len(rewards))), float(np.std(resampled)), float(effective))
