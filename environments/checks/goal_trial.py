"""A trial of an environment with goals: whether its rewards are those that it computes, as for other goals."""

import itertools

import numpy as np

from ...errors import CallboardError, anything_raised
from ...runtime.deadlines import Deadline
from ...specs import ACHIEVED, DESIRED
from ..batches.batched import BatchedEnvironment
from ..batches.goal_rewards import REWARD
from ..batches.user_errors import user_traceback
from .trial import Phase, random_timesteps
from .trial_process import error_line

_STEPS, _SECONDS = 100, 1.0
"""Steps that are made, and seconds after which no other one is begun."""
_CLOSE = 1e-4
"""Largest difference of two rewards that are equal but for the rounding of goals."""


def check_played_rewards(batch: BatchedEnvironment, name: str) -> None:
    """Plays the first environment of a batch at random, and compares its rewards with those of its `compute_reward`.

    Args:
      batch: the batch, which has `goal_rewards` and is used for nothing else.
      name: name of the environment.

    Raises:
      CallboardError: they differ, as with a wrapper that changes them or repeats actions, or the environment fails.
    """
    batch.keep_infos()
    phases: list[Phase] = ["reset"]
    try:
        _compare(batch, name, phases)
    except CallboardError:
        raise
    except anything_raised() as error:
        raise CallboardError(error_line(error, name, phases[-1]), user_traceback(error)) from error


def _compare(batch: BatchedEnvironment, name: str, phases: list[Phase]) -> None:
    goals, deadline = batch.goal_rewards, Deadline(_SECONDS)
    played = random_timesteps(batch, 0, phases.append)
    next(played)
    with goals.counted_steps() as count:
        for timestep in itertools.islice(played, _STEPS):
            steps, count[0] = count[0], 0
            if timestep.first[0]:  # The newest observation is of another episode.
                continue
            if steps > 1:
                raise CallboardError(
                    f"a wrapper of {name} makes {steps} steps with one action, and {REWARD} gives the reward of one: "
                    f"leave the wrapper out, give it a {REWARD} of its own, or set agent.replay.hindsight.goals to 0"
                )
            achieved, desired = (timestep.observation[part][:1] for part in (ACHIEVED, DESIRED))
            computed, given = goals.rewards(0, achieved, desired, goals.infos()[:1])[0], timestep.reward[0]
            if not np.isclose(computed, given, atol=_CLOSE):
                raise CallboardError(
                    f"a reward of {name} is {given:g}, and its {REWARD} gives {computed:g} for the same goal: let both "
                    "be the same, without wrappers that change rewards, or set agent.replay.hindsight.goals to 0"
                )
            if deadline.has_passed:
                break
