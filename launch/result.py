"""The result of a part of a run, as a session yields it."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Result:
    """The state of a run.

    Attributes:
      environment_steps: executed actions since the start of the run, including those before it was resumed.
      learner_steps: learner steps, counted likewise.
      episodes: training episodes that have ended, counted likewise.
      seconds: since this start of the run.
      episode_return: mean return of the last 100 training episodes; None before the first one has ended.
      score: mean return of the newest evaluation by the run's evaluator; None before the first.
      metrics: all metrics by name, as in `metrics.jsonl`; see docs/metrics.md.
      over: whether the run has ended, or is about to.
    """

    environment_steps: int
    learner_steps: int
    episodes: int
    seconds: float
    episode_return: float | None
    score: float | None
    metrics: Mapping[str, float]
    over: bool


def result_of(status: Mapping[str, Any]) -> Result:
    """Returns the result that a status of the coordinator contains."""
    metrics = {name: value for name, value in status.items() if "/" in name}
    return Result(
        environment_steps=status["environment_steps"],
        learner_steps=status["learner_steps"],
        episodes=status["episodes"],
        seconds=status["elapsed_seconds"],
        episode_return=metrics.get("actor/episode_return"),
        score=metrics.get("evaluator/return"),
        metrics=metrics,
        over=status["stopping"],
    )
