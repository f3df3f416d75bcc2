"""The results of a part of a run and of an evaluation, as a session returns them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .run_directory.metric_names import RUN_METRICS

if TYPE_CHECKING:
    from ..agents.policies.acting import Episode

_RUN_METRICS = frozenset(metric.name for metric in RUN_METRICS)


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


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """The result of `Session.evaluate`.

    Attributes:
      mean: mean return.
      std: standard deviation of the returns.
      returns: of every episode.
      lengths: environment steps of every episode.
      metrics: metrics from infos, and with several agents returns by policy and by agent, such as `red/return`.
    """

    mean: float
    std: float
    returns: list[float]
    lengths: list[int]
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


def result_of(status: Mapping[str, Any]) -> Result:
    """Returns the result that a status of the coordinator contains."""
    metrics = {name: value for name, value in status.items() if "/" in name or name in _RUN_METRICS}
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


def evaluation_result(episodes: Sequence[Episode], metrics: Mapping[str, float]) -> EvaluationResult:
    """Returns the result of an evaluation with these episodes and metrics, `evaluator/...`."""
    returns = [episode.episode_return for episode in episodes]
    return EvaluationResult(
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
        returns=returns,
        lengths=[episode.length for episode in episodes],
        metrics={name.removeprefix("evaluator/"): value for name, value in metrics.items()},
    )
