"""Hindsight experience replay (Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495): goals achieved later.

A window of transitions was played for one goal.  With k further goals, which were achieved in the same episode, it is k
windows more, whose rewards are computed anew, as if it had been played for these.  Replay stores its frames once: the
row of a window's first timestep also holds its further goals, and rewards for them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ...data import Record
from ...specs import DESIRED

CONTINUES, TERMINATES, UNKNOWN = 0, 1, 2


class Hindsight(NamedTuple):
    """The window that begins at a timestep, with k further goals and up to n transitions; leaves `[..., k, ...]`."""

    goal: Any
    """`[..., k, *shape]`, as `desired_goal` in observations."""
    reward: Any
    """float32 `[..., k, n]`."""
    outcome: Any
    """uint8 `[..., k, n]`: whether a transition continues (0), terminates (1), or is not known (2), so not valid."""


class RewardsOfGoals(Protocol):
    """Rewards of an environment's transitions for other goals; see `environments.batches.goal_rewards`."""

    def infos(self) -> Sequence[Any]:
        """Returns the infos of the newest timestep by environment."""

    def rewards(self, env: int, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]) -> np.ndarray:
        """Returns the rewards of an environment, float32 `[M]`, of goals `[M, ...]`."""

    def terminated(self, env: int, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]) -> Any:
        """Returns whether transitions terminate, bool `[M]`; None if that does not depend on goals."""


def chosen_goals(strategy: str, length: int, goals: int, rng: np.random.Generator) -> np.ndarray:
    """Chooses the timesteps of an episode whose achieved goals become desired ones.

    Every second timestep has the goals of the one before as long as they are still to come, which replay stores with
    almost no bytes, as it stores differences.  For each timestep alone, every goal is as probable as any other.

    Args:
      strategy: `future`, random ones after the timestep; `final`, the last one; `episode`, random ones but the first.
      length: transitions in the episode (L).
      goals: goals to choose for each timestep (k).
      rng: the source of randomness.

    Returns:
      int `[L, k]`, from 1 to L, of those that begin transitions.
    """
    if strategy == "final":
        return np.full((length, goals), length)
    first = 1 + (np.arange(length)[:, np.newaxis] if strategy == "future" else np.zeros((length, 1), np.int64))
    chosen = rng.integers(first, length + 1, (length, goals))
    before = chosen[np.arange(length) // 2 * 2]
    return np.where(before >= first, before, chosen)


def hindsight_of(
    achieved: np.ndarray,
    discount: np.ndarray,
    infos: Sequence[Any],
    chosen: np.ndarray,
    steps: int,
    rewards: RewardsOfGoals,
    env: int,
) -> Hindsight:
    """Returns the further goals of the windows that begin in an episode, leaves `[L, k, ...]`.

    Where the environment does not say which transitions terminate for a goal, those do that did.

    Args:
      achieved: `[L + 1, ...]`, the goals achieved at its timesteps.
      discount: `[L]`, the discounts that followed its actions.
      infos: the infos that followed its actions.
      chosen: int `[L, k]`, from `chosen_goals`.
      steps: transitions in a window (n).
      rewards: gives the rewards.
      env: index of the environment.
    """
    length, goals = chosen.shape
    transition = np.broadcast_to(
        np.arange(length)[:, np.newaxis, np.newaxis] + np.arange(steps), (length, goals, steps)
    )
    known = transition < length
    number = transition[known]
    desired = np.broadcast_to(chosen[:, :, np.newaxis], known.shape)[known]
    arguments = env, achieved[number + 1], achieved[desired], [infos[index] for index in number.tolist()]
    reward, outcome = np.zeros(known.shape, np.float32), np.full(known.shape, UNKNOWN, np.uint8)
    reward[known] = rewards.rewards(*arguments)
    terminated = rewards.terminated(*arguments)
    outcome[known] = np.where(discount[number] == 0 if terminated is None else terminated, TERMINATES, CONTINUES)
    return Hindsight(achieved[chosen], reward, outcome)


def relabeled(record: Record, hindsight: Hindsight, goal: Any) -> Record:
    """Returns windows as if they had been played for one of their further goals.

    Args:
      record: arrays or tensors of n transitions of B windows, with or without observations.
      hindsight: leaves `[B, k, ...]`.
      goal: int `[B]`, which goal: 0 for the one that was played for.
    """
    arrays = isinstance(record.reward, np.ndarray)
    where = np.where if arrays else tf.where
    further = goal > 0

    def of_goal(leaf: Any) -> Any:
        if arrays:
            return leaf[np.arange(len(goal)), np.maximum(goal - 1, 0)]
        return tf.gather(leaf, tf.maximum(goal - 1, 0), batch_dims=1)

    def of_transitions(leaf: Any) -> Any:
        return np.transpose(of_goal(leaf)) if arrays else tf.transpose(of_goal(leaf))

    outcome, discount = of_transitions(hindsight.outcome), record.discount
    terminates = where(outcome == TERMINATES, np.float32(0), where(discount == 0, np.float32(1), discount))
    last = [record.last[:-1] | (further & (outcome == UNKNOWN)), record.last[-1:]]
    record = record._replace(
        reward=where(further, of_transitions(hindsight.reward), record.reward),
        discount=where(further, terminates, discount),
        last=np.concatenate(last) if arrays else tf.concat(last, axis=0),
    )
    if isinstance(record.observation, dict):
        desired = record.observation[DESIRED]
        taken = tf.reshape(further, (-1, *[1] * (len(desired.shape) - 2)))
        desired = tf.where(taken, of_goal(hindsight.goal)[tf.newaxis], desired)
        record = record._replace(observation={**record.observation, DESIRED: desired})
    return record
