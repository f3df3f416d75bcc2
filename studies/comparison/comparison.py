"""A comparison of runs: groups of runs with equal settings but for the seed, and the scores of runs and groups."""

import dataclasses
import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import annotated_types
import numpy as np

from ...agents.agent_names import AGENTS
from ...errors import CallboardError, unknown
from ...launch.experiments.experiment import Experiment
from ...launch.experiments.settings import plain, setting_fields
from ...launch.run_directory.metric_names import is_known
from ...settings.nested_settings import declared_fields
from ...settings.setting_types import FiniteFloat, shown
from .run_results import RETURN, RunResult
from .score_statistics import (
    Interval,
    Reached,
    bootstrap_interval,
    first_reached,
    interquartile_mean,
    probability_of_improvement,
)

_MOST_RESAMPLES = 1_000_000
_MOST_PAIRED_RESAMPLES = 2000
_MOST_PAIRS = 28
"""Pairs of variants that a table shows: those of eight."""
_DURATION = ("max_steps", "max_learner_steps", "max_seconds")
"""Limits on the length of a run, which are no property of what is compared."""
_BESIDES = re.compile(
    r"(checkpoint|keep_|loggers|log_level|prometheus_|policy_server_|record_|video_|training_video_|render$|listen$)"
    r"|(replay_checkpoint|node_timeout|check_env|evaluator$|evaluate_every|evaluation_(episodes|envs|timeout)|stop_|episode_metrics)"
)
"""Settings of what a run writes, shows and survives, and of how often and when its policy is evaluated."""
_MINOR = re.compile(r"(callbacks|evaluation_|patience)")
"""Settings of what watches a run and of its evaluations, which name a group only if nothing else does."""
_UNCLEAR = ("name", "options", "size")
"""Ends of names of settings that mean little without what is before them."""


@dataclasses.dataclass(frozen=True)
class ComparisonSettings:
    """How runs are compared.

    Attributes:
      metric: a name in `metrics.jsonl`.
      mode: whether a higher value is better (max) or a lower one (min).
      goal: value of the metric for which steps and seconds are measured; None takes the `stop_return` of each run, for
        the metric `evaluator/return`.
      over: what curves are a function of: environment `steps` or `seconds` of the run.
      spread: the band around a curve: `std`, the standard deviation over runs; `range`, from the lowest to the highest
        run; `interval`, the 95% bootstrap interval of the mean.
      confidence: confidence of the intervals of scores.
      resamples: number of bootstrap resamples.
      score_ranges: for each environment, the scores that count as 0 and 1, such as `{CartPole-v1: [20, 500]}`; scores
        of one agent in all these environments are then summarized in one number, as in rliable.
    """

    metric: str = RETURN
    mode: Literal["max", "min"] = "max"
    goal: FiniteFloat | None = None
    over: Literal["steps", "seconds"] = "steps"
    spread: Literal["std", "range", "interval"] = "std"
    confidence: Annotated[float, annotated_types.Interval(gt=0, lt=1)] = 0.95
    resamples: Annotated[int, annotated_types.Interval(ge=1, le=_MOST_RESAMPLES)] = 10_000
    score_ranges: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Checks the settings before anything is read.

        Raises:
          CallboardError: one line that says what is wrong and how to fix it.
        """
        if "/" not in self.metric and not is_known(self.metric):
            raise CallboardError(
                f"unknown metric {self.metric!r}; name one of those in metrics.jsonl, such as {RETURN}"
            )
        for env, pair in self.score_ranges.items():
            numbers = [value for value in pair if _is_number(value)] if isinstance(pair, list) else []
            if len(numbers) != 2 or len(pair) != 2 or numbers[0] == numbers[1]:
                raise CallboardError(
                    f"score_ranges.{env} must be the scores that count as 0 and 1, such as [20, 500], not {shown(pair)}"
                )


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs whose settings are equal but for the seed.

    Attributes:
      variant: the agent, and settings that distinguish it from other groups in the same environment.
      env: name of the environment.
      runs: the runs, by seed.
    """

    variant: str
    env: str
    runs: Sequence[RunResult]

    @property
    def name(self) -> str:
        return f"{self.variant} on {self.env}"

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.runs]


@dataclasses.dataclass(frozen=True)
class RunScore:
    """The score of a run."""

    group: Group
    run: RunResult
    goal: float | None
    reached: Reached | None


@dataclasses.dataclass(frozen=True)
class GroupScore:
    """The scores of a group.

    Attributes:
      group: the group.
      mean: mean of the final scores.
      std: their standard deviation over runs.
      area: mean of the areas under the curves, each divided by its steps.
      iqm: their interquartile mean.
      interval: bootstrap interval of the interquartile mean; None for one run.
      has_goal: whether the runs have a goal.
      reached: when runs reached it, of those that did.
    """

    group: Group
    mean: float
    std: float
    area: float
    iqm: float
    interval: Interval | None
    has_goal: bool
    reached: Sequence[Reached]

    @property
    def median_steps(self) -> float | None:
        """Median environment steps to the goal over all runs, of which those that did not reach it took longest."""
        return self._median([reached.steps for reached in self.reached])

    @property
    def median_seconds(self) -> float | None:
        return self._median([reached.seconds for reached in self.reached])

    def _median(self, values: list[float]) -> float | None:
        late = [math.inf] * (len(self.group.runs) - len(values))
        median = float(np.median([*values, *late])) if values else math.inf
        return median if math.isfinite(median) else None


@dataclasses.dataclass(frozen=True)
class VariantScore:
    """The normalized scores of a variant in several environments: their interquartile mean and its interval."""

    variant: str
    envs: Sequence[str]
    runs: int
    iqm: float
    interval: Interval | None
    scores: Sequence[Sequence[float]]
    """The normalized scores in each of the environments."""


@dataclasses.dataclass(frozen=True)
class VariantImprovement:
    """How probable it is that a run of a variant is better than one of another, in an environment chosen at random."""

    variant: str
    other: str
    envs: Sequence[str]
    probability: float
    interval: Interval | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that was computed."""

    settings: ComparisonSettings
    runs: Sequence[RunScore]
    groups: Sequence[GroupScore]
    variants: Sequence[VariantScore]
    improvements: Sequence[VariantImprovement]
    left_out: Sequence[str]


def compare(groups: Sequence[Group], settings: ComparisonSettings, left_out: Sequence[str] = ()) -> Comparison:
    """Computes the scores of groups.

    Args:
      groups: groups with at least one run each.
      settings: how they are compared.
      left_out: a line about every run that was left out.
    """
    runs = [_run_score(group, run, settings) for group in groups for run in group.runs]
    return Comparison(
        settings=settings,
        runs=runs,
        groups=[_group_score(group, [score for score in runs if score.group is group], settings) for group in groups],
        variants=_variant_scores(groups, settings),
        improvements=_improvements(groups, settings),
        left_out=list(left_out),
    )


def group_runs(
    runs: Iterable[RunResult], group_by: Sequence[str] = (), labels: Mapping[str, str] | None = None
) -> list[Group]:
    """Returns the groups of runs, in the order of their first runs.

    Args:
      runs: the runs.
      group_by: settings that make groups of the runs of an agent in an environment, such as `optimizer.learning_rate`;
        without any, runs of a group are equal in everything but their seed and how long they were to last.
      labels: for directories, the names of the groups of their runs; runs with one label are one group.

    Raises:
      CallboardError: no run has a setting of `group_by`, or no run is in a directory of `labels`.
    """
    runs = list(runs)
    by_path = {os.path.abspath(path): label for path, label in (labels or {}).items()}
    given = {run.name: label for run in runs if (label := _label(run.name, by_path))}
    for path, label in by_path.items():
        if label not in given.values():
            raise CallboardError(f"labels name {os.path.relpath(path)}, but no run that is compared is there")
    keys = [_full_name(key, runs) for key in group_by]
    found: dict[str, list[RunResult]] = {}
    for run in runs:
        settings = {key: run.settings.get(key) for key in keys} if keys else _distinguishing(run)
        same = given.get(run.name) or sorted(settings.items())
        found.setdefault(repr((run.agent if run.name not in given else "", run.env, same)), []).append(run)
    alike = list(found.values())
    unnamed = [members[0] for members in alike if members[0].name not in given]
    short = {
        agent: _short_names(keys or _differing_settings([run for run in unnamed if run.agent == agent]))
        for agent in {run.agent for run in unnamed}
    }
    first = [members[0] for members in alike]
    names = {run.name: given.get(run.name) or _variant(run, short[run.agent], brief=not keys) for run in first}
    counted = Counter((run.env, names[run.name]) for run in first)
    return [
        Group(
            names[run.name]
            if run.name in given or counted[run.env, names[run.name]] == 1
            else _variant(run, short[run.agent], brief=False),
            run.env,
            sorted(members, key=lambda run: run.seed),
        )
        for run, members in zip(first, alike, strict=True)
    ]


def _label(name: str, by_path: Mapping[str, str]) -> str | None:
    path = os.path.abspath(name)
    return next((label for folder, label in by_path.items() if path == folder or path.startswith(f"{folder}/")), None)


def _full_name(key: str, runs: Sequence[RunResult]) -> str:
    known = dict.fromkeys(name for run in runs for name in run.settings)
    for name in known:
        if name in (key, f"agent.{key}"):
            return name
    raise unknown("setting to group by", key, [name.removeprefix("agent.") for name in known])


def _distinguishing(run: RunResult) -> dict[str, Any]:
    """Returns the settings of a run that make it another experiment, without those that are not set."""
    return {
        key: value
        for key, value in run.settings.items()
        if key not in _DURATION and not _BESIDES.match(key) and value not in (None, {}, [])
    }


def _differing_settings(runs: Sequence[RunResult]) -> list[str]:
    """Returns the settings in which an agent's groups in one environment differ, given a run of each group."""
    names: dict[str, None] = {}
    for run in runs:
        for other in runs:
            if run is not other and run.env == other.env:
                mine, others = _distinguishing(run), _distinguishing(other)
                names |= {key: None for key in [*mine, *others] if mine.get(key) != others.get(key)}
    return list(names)


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns for each setting the shortest end of its name that says what it is and that no other of them has."""
    short: dict[str, str] = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[first:]) for first in reversed(range(len(parts)))]
        others = [f".{other}" for other in keys if other != key]
        clear = [end for end in ends if end not in _UNCLEAR]
        short[key] = next((end for end in clear if not any(other.endswith(f".{end}") for other in others)), key)
    return short


def _variant(run: RunResult, short: Mapping[str, str], brief: bool) -> str:
    """Returns the name of a run's group: its agent, and the settings that distinguish it.

    Args:
      run: one of the group.
      short: what to show of the names of these settings.
      brief: whether defaults and what only watches the run are left out.
    """
    settings = _distinguishing(run)
    if brief:
        defaults = _defaults(run.agent)
        settings = {
            key: value
            for key, value in settings.items()
            if not _MINOR.match(key) and not (key in defaults and defaults[key] == value)
        }
    values = [f"{name} {_shown_value(settings[key])}" for key, name in short.items() if key in settings]
    return ", ".join([run.agent, *values])


@functools.cache
def _defaults(agent: str) -> Mapping[str, Any]:
    """Returns the default settings of runs with an agent by flat name; of one of a user's own, those of the run."""
    fields = setting_fields(agent) if agent in AGENTS else declared_fields(Experiment)
    return {name: plain(field.default) for name, field in fields.items() if field.default is not dataclasses.MISSING}


def _shown_value(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _run_score(group: Group, run: RunResult, settings: ComparisonSettings) -> RunScore:
    goal = settings.goal
    if goal is None and settings.metric == RETURN and _is_number(run.settings.get("stop_return")):
        goal = float(run.settings["stop_return"])
    return RunScore(group, run, goal, None if goal is None else first_reached(run, goal, settings.mode))


def _group_score(group: Group, runs: Sequence[RunScore], settings: ComparisonSettings) -> GroupScore:
    scores = np.array(group.scores)
    return GroupScore(
        group=group,
        mean=float(scores.mean()),
        std=float(scores.std()),
        area=float(np.mean([run.area for run in group.runs])),
        iqm=float(interquartile_mean(scores)),
        interval=bootstrap_interval([scores], confidence=settings.confidence, resamples=settings.resamples),
        has_goal=any(run.goal is not None for run in runs),
        reached=[run.reached for run in runs if run.reached is not None],
    )


def _variant_scores(groups: Sequence[Group], settings: ComparisonSettings) -> list[VariantScore]:
    by_variant: dict[str, dict[str, np.ndarray]] = {}
    for group in groups:
        if group.env in settings.score_ranges:
            low, high = settings.score_ranges[group.env]
            normalized = (np.array(group.scores) - low) / (high - low)
            by_variant.setdefault(group.variant, {})[group.env] = normalized
    return [
        VariantScore(
            variant=variant,
            envs=list(of_env),
            runs=sum(scores.size for scores in of_env.values()),
            iqm=float(interquartile_mean(np.concatenate(list(of_env.values())))),
            interval=bootstrap_interval(
                list(of_env.values()), confidence=settings.confidence, resamples=settings.resamples
            ),
            scores=[scores.tolist() for scores in of_env.values()],
        )
        for variant, of_env in by_variant.items()
    ]


def _improvements(groups: Sequence[Group], settings: ComparisonSettings) -> list[VariantImprovement]:
    """Returns the probability of improvement for each pair of variants that have several runs in the same places."""
    scores: dict[str, dict[str, list[float]]] = {}
    for group in groups:
        if len(group.runs) > 1:
            scores.setdefault(group.variant, {})[group.env] = group.scores
    found = []
    for variant, other in itertools.combinations(scores, 2):
        if envs := [env for env in scores[variant] if env in scores[other]]:
            probability, interval = probability_of_improvement(
                [scores[variant][env] for env in envs],
                [scores[other][env] for env in envs],
                settings.mode,
                settings.confidence,
                min(settings.resamples, _MOST_PAIRED_RESAMPLES),
            )
            found.append(VariantImprovement(variant, other, envs, probability, interval))
    return found if len(found) <= _MOST_PAIRS else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
