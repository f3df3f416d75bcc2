"""The support of distributions of values, from the returns that were seen where it is not given."""

from typing import Any

import numpy as np
import tensorflow as tf

from ...data import Sample
from ...errors import CallboardError
from ...networks.heads.moved_atoms import move_atoms
from ...transitions import valid_transitions
from ..losses.categorical import support
from ..losses.n_step import n_step_window
from ..losses.replicas import largest_over_replicas, sum_over_replicas
from ..losses.rewards import learning_reward
from ..watched import Watched
from .reward_normalizer import RewardNormalizer, follows_returns, normalization_discount

_GROWTH = 1.5
"""How far an end moves beyond what it did not reach."""
_ALONG = 2.0
"""How many times as far an end that moves takes values along."""
_MARGIN = 0.05
"""Part of the width by which the support exceeds its ends, so that a return that is often seen is inside."""
_FULL = 2.5
"""Share of the targets at an end from which it moves, times that of an atom of a uniform distribution."""
_TOO_WIDE = 10.0
"""How many times what was shown an end may be."""
_WINDOW = 100_000
"""Valid transitions of batches after which an end that is too wide shrinks."""

SUPPORT_ENDS = Watched(
    "support_ends",
    0.2,
    "the range of values is too narrow: try a lower agent.value_min and a higher agent.value_max",
)


class _Shown:
    """Returns of batches since the ends were last compared with them; no checkpoint and no policy holds them."""

    def __init__(self) -> None:
        self.values = _variable(np.zeros(2), "values_shown")
        """Lowest and highest return, reward or mean of a target."""
        self.limits = _variable(np.zeros(2), "limits_shown")
        """Lowest and highest value that the rewards allow."""
        self.transitions = _variable(0.0, "transitions_shown")
        self.ends = _variable(np.full(2, np.nan), "ends_shown")
        """Where the ends belong; not a number where they stay."""


class ValueRange(tf.Module):
    """The lowest and the highest value of a categorical distribution: those given, or else those of the returns seen.

    An end that is not given follows what batches show, and so moves few times in a run:

    - where a reward, a window's return or, unless rewards are clipped, an episode's discounted return
      (`Sample.discounted_return`) lies beyond it, it moves to 1.5 times that;
    - where targets gather at it, since values continue after time limits, it moves by half, at most to the largest
      reward over 1 - γ (with γ = 1 to the largest return);
    - where after 100,000 transitions it is more than ten times what they showed, means of targets included, it shrinks
      to 1.5 times that.

    `settle` moves them after the update, with the networks: values grow with an end that moves further, to at most
    twice, so that distributions remain as wide in atoms.  Where they become narrow while much is to be learned, the
    policy improves later (docs/d4pg.md).  Beyond that, and where an end shrinks, the values that are learned stay the
    same.  The ends are part of the weights.

    Args:
      agent: has `value_min` and `value_max`, the settings of rewards and the discount.
      returns: the agent's statistics of returns, by which rewards are normalized; None if they are not.
    """

    def __init__(self, agent: Any, returns: RewardNormalizer | None = None):
        super().__init__()
        self._agent = agent
        self._returns = returns
        self._given = agent.value_min, agent.value_max
        if follows_returns(agent):
            self._seen = _variable(0.0, "lowest_return"), _variable(0.0, "highest_return")
            self._shown = _Shown()

    def support(self, atoms: int, dtype: Any = tf.float32) -> tf.Tensor:
        """Returns the values of the atoms, `[atoms]`; from -1 to 1 before a return other than 0 was seen."""
        if None not in self._given:
            return support(*self._given, atoms, dtype)
        return self._support(tf.stack(self._seen), atoms, dtype)

    def _support(self, ends: tf.Tensor, atoms: int, dtype: Any) -> tf.Tensor:
        low, high = (end if given is None else given for end, given in zip(tf.unstack(ends), self._given, strict=True))
        low, high = tf.cast(low, tf.float64), tf.cast(high, tf.float64)
        margin = tf.where(high > low, _MARGIN * (high - low), 1.0)
        low, high = (
            low if self._given[0] is not None else tf.minimum(low, high) - margin,
            high if self._given[1] is not None else tf.maximum(low, high) + margin,
        )
        return support(tf.cast(low, dtype), tf.cast(high, dtype), atoms, dtype)

    def update(self, sample: Sample) -> None:
        """Moves the ends by what a replica's share of a batch shows; does nothing if both ends are given.

        Args:
          sample: windows, whose rewards are normalized if the agent's are.
        """
        if None not in self._given or isinstance(sample.discounted_return, tuple):
            return
        record, agent, shown = sample.record, self._agent, self._shown
        valid = valid_transitions(record.first, record.last, record.discount)
        learned = learning_reward(tf.convert_to_tensor(record.reward), agent.reward_scale, agent.reward_clip)
        steps = n_step_window(learned, agent.discount * record.discount, valid)
        reward = _only(learned, valid)
        returns = tf.convert_to_tensor(sample.discounted_return)
        if self._returns is not None:
            returns = self._returns.divide_by_deviation(returns)
        returns = _only(learning_reward(returns, agent.reward_scale), valid)
        found = [reward, _only(steps.returns, steps.valid)]
        if self._returns is None and agent.reward_clip is None:
            # The return of clipped rewards is not the clipped return.
            found.append(returns)
        values = _extremes(tf.concat([tf.reshape(part, (-1,)) for part in found], axis=0))
        ends = self._wanted()
        ends = tf.where(_beyond(values, ends), _GROWTH * values, ends)
        shown.values.assign(_wider(shown.values, values))
        limits = _extremes(returns) if agent.discount == 1 else _extremes(reward) / (1 - agent.discount)
        shown.limits.assign(_wider(shown.limits, limits))
        shown.transitions.assign_add(sum_over_replicas(tf.cast(valid, tf.float64)))
        over = shown.transitions >= _WINDOW
        self._move(tf.where(over & _beyond(ends, _TOO_WIDE * shown.values), _GROWTH * shown.values, ends))
        for variable in (shown.values, shown.limits, shown.transitions):
            variable.assign(tf.where(over, tf.zeros_like(variable), variable))

    def follow(self, target: tf.Tensor, values: tf.Tensor, valid: Any) -> None:
        """Moves an end at which the targets of a replica's share of a batch gather, as far as rewards allow.

        Args:
          target: `[B, N]`, probabilities from `projected_target`.
          values: `[N]`, their support.
          valid: bool `[B]`, whether there is a target.
        """
        if None not in self._given:
            return
        shown, taken = self._shown, tf.cast(valid, tf.float64)
        shown.values.assign(_wider(shown.values, _extremes(_only(tf.linalg.matvec(target, values), valid))))
        gathered = [sum_over_replicas(_only(target[:, end], valid)) for end in (0, -1)]
        full = tf.stack(gathered) > _FULL / target.shape[-1] * sum_over_replicas(taken)
        ends = self._wanted()
        low, high = tf.unstack(_GROWTH * ends)
        lowest, highest = tf.unstack(shown.limits)
        further = tf.stack([tf.maximum(low, lowest), tf.minimum(high, highest)])
        self._move(tf.where(full & _beyond(further, ends), further, ends))

    def settle(self, *networks: tf.Module) -> None:
        """Moves the ends to where the batches of an update have shown that they belong, and networks with them.

        Call it after the update, where targets have been copied; see `move_atoms`.

        Args:
          *networks: their distributions have `agent.atoms` atoms.
        """
        if None not in self._given:
            return
        seen, ends = tf.stack(self._seen), self._wanted()
        # Where the atoms are taken to have been, so that values grow with the ends.
        grown = tf.clip_by_value(ends, tf.minimum(seen, _ALONG * seen), tf.maximum(seen, _ALONG * seen))
        atoms = self._agent.atoms
        before, after = (tf.ensure_shape(self._support(each, atoms, tf.float64), (atoms,)) for each in (grown, ends))
        for network in networks:
            move_atoms(network, before, after, tf.reduce_any(ends != seen))
        self._assign(ends)
        self._shown.ends.assign(tf.fill((2,), tf.constant(np.nan, tf.float64)))

    def _wanted(self) -> tf.Tensor:
        wanted = self._shown.ends.read_value()
        return tf.where(tf.math.is_nan(wanted), tf.stack(self._seen), wanted)

    def _move(self, ends: tf.Tensor) -> None:
        """Moves the ends after the update; at once where nothing was seen, and so nothing was learned, before."""
        seen = tf.stack(self._seen)
        self._shown.ends.assign(ends)
        self._assign(tf.where(tf.reduce_all(seen == 0), ends, seen))

    def _assign(self, ends: tf.Tensor) -> None:
        for variable, end in zip(self._seen, tf.unstack(ends), strict=True):
            variable.assign(end)


def _variable(value: Any, name: str) -> tf.Variable:
    # All replicas assign the same value, so the first replica's is kept.
    return tf.Variable(
        value, trainable=False, dtype=tf.float64, name=name, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )


def _only(x: tf.Tensor, valid: Any) -> tf.Tensor:
    """Returns finite numbers where they are valid, float64, and 0 elsewhere."""
    x = tf.cast(x, tf.float64)
    return tf.where(valid & tf.math.is_finite(x), x, 0.0)


def _extremes(x: tf.Tensor) -> tf.Tensor:
    """Returns the lowest number, at most 0, and the highest, at least 0, over all replicas."""
    lowest, highest = -largest_over_replicas(-x), largest_over_replicas(x)
    return tf.stack([tf.minimum(lowest, 0.0), tf.maximum(highest, 0.0)])


def _beyond(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns whether the lowest is lower and the highest is higher, bool `[2]`."""
    return tf.stack([one[0] < other[0], one[1] > other[1]])


def _wider(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return tf.where(_beyond(other, one), other, one)


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
