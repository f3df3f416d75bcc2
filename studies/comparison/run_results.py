"""The results of runs, read from run directories, URLs, and folders of such directories.

A run that cannot be compared is no error: it is named, with the reason, and left out.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import CallboardError, check_type
from ...files.guarded_files import read_json_lines
from ...launch.experiments.yaml_files import read_yaml
from ...launch.run_directory.found_runs import files_of_run, find_runs
from ...launch.run_directory.layout import MOST_METRICS_BYTES, RunDirectory

RETURN = "evaluator/return"
_EVALUATOR = "evaluator/"
_COUNTS = ("environment_steps", "elapsed_seconds")
_OF_ROWS = (*_COUNTS, "learner_steps", "evaluator/environment_steps", "evaluator/learner_step", "evaluator/return_std")
_NOT_COMPARED = ("seed", "run_dir")
"""Settings in which runs of one group differ."""


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The values of one metric over a run, `N` of them, in the order of their steps.

    Attributes:
      name: the run directory as the user named it, a path or a URL.
      seed: seed of the run.
      settings: all other settings of the run except its directory, by flat name such as `agent.discount`.
      steps: float64 `[N]`, these steps when the values were measured.
      seconds: float64 `[N]`, seconds of the run at that time, over all its resumptions.
      values: float64 `[N]`.
      deviation: standard deviation over the episodes of the last evaluation; None for other metrics.
      total_steps: those of the whole run.
      total_seconds: seconds of the whole run.
      counted: which steps are counted: `environment steps`, or `learner steps` of a run that learned from recorded
        episodes alone.
    """

    name: str
    seed: int
    settings: Mapping[str, Any]
    steps: NDArray[np.float64]
    seconds: NDArray[np.float64]
    values: NDArray[np.float64]
    deviation: float | None
    total_steps: int
    total_seconds: float
    counted: str = "environment steps"

    @property
    def score(self) -> float:
        """The last value: for `evaluator/return`, the mean return of the last evaluation."""
        return float(self.values[-1])

    @property
    def area(self) -> float:
        """The area under the curve, over the steps from its first value to its last: the mean of its values there."""
        steps = np.diff(self.steps)
        if not steps.sum():
            return self.score
        return float((steps * (self.values[1:] + self.values[:-1]) / 2).sum() / steps.sum())

    @property
    def agent(self) -> str:
        return str(self.settings["agent.name"])

    @property
    def env(self) -> str:
        return str(self.settings["env"])


class Results(NamedTuple):
    """The runs that were read, and one line about every run that was left out."""

    runs: list[RunResult]
    left_out: list[str]


class _Unusable(Exception):
    """The run cannot be compared; the message says why."""


def read_results(names: Sequence[str], metric: str = RETURN, include_running: bool = False) -> Results:
    """Reads runs.

    Args:
      names: run directories, or folders in which they are at any depth; paths or URLs.
      metric: a name in `metrics.jsonl`.
      include_running: whether runs that have not ended are read as far as they are.

    Raises:
      CallboardError: there is no run in one of the directories.
    """
    check_type("names", names, Iterable, "a list of runs")
    check_type("metric", metric, str, "the name of a metric")
    results = Results([], [])
    for name in dict.fromkeys(run for given in names for run in find_runs(given)):
        try:
            results.runs.append(read_result(name, metric, include_running))
        except (_Unusable, CallboardError, OSError) as error:
            results.left_out.append(f"{name} is left out: {error}")
    return results


def read_result(name: str, metric: str, include_running: bool) -> RunResult:
    """Reads one run, see `read_results`."""
    with files_of_run(name) as (directory, is_running):
        if is_running and not include_running:
            raise _Unusable("it is still running")
        settings = _settings(directory)
        return _result(name, settings, _rows(directory.metrics, metric), metric)


def _settings(directory: RunDirectory) -> dict[str, Any]:
    """Returns the settings by flat name.  They are not checked: the run may be of another version."""
    content = read_yaml(directory.experiment, links=False)
    try:
        settings = dict(_flat(content))
        int(settings["seed"])
        str(settings["agent.name"]), str(settings["env"])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise _Unusable("its experiment.yaml is damaged") from error
    return settings


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _rows(path: pathlib.Path, metric: str) -> list[dict[str, Any]]:
    """Returns the rows of a run, each with the values that `_result` needs."""
    rows: list[dict[str, Any]] = []
    names = (metric, *_OF_ROWS)
    try:
        for row in read_json_lines(path, MOST_METRICS_BYTES):
            if not all(type(row.get(name)) in (int, float, type(None)) for name in _OF_ROWS):
                raise TypeError("a value is no number")
            if None in [row[name] for name in _COUNTS]:
                raise TypeError("a count is missing")
            rows.append({name: row[name] for name in names if name in row})
    except FileNotFoundError as error:
        raise _Unusable("it has no metrics.jsonl") from error
    except OSError as error:
        raise _Unusable(f"its metrics.jsonl cannot be read: {error.strerror}") from error
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise _Unusable(f"line {len(rows) + 1} of its metrics.jsonl is damaged") from error
    return rows


def _result(name: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]], metric: str) -> RunResult:
    steps: list[float] = []
    seconds: list[float] = []
    values: list[float] = []
    before = offset = 0.0
    last_measured: object = None
    deviation = None
    of_evaluator = metric.startswith(_EVALUATOR)
    is_offline = _is_offline(rows)
    total = "learner_steps" if is_offline else "environment_steps"
    count = total
    if of_evaluator:
        count = "evaluator/learner_step" if is_offline else "evaluator/environment_steps"
    for row in rows:
        # A coordinator counts its seconds from its start, as in a run that was resumed.
        if row["elapsed_seconds"] < before:
            offset += before
        before = row["elapsed_seconds"]
        value = row.get(metric)
        at = row.get(count)
        measured = (at, row.get("evaluator/learner_step") if of_evaluator else None)
        if not isinstance(value, int | float) or not isinstance(at, int | float) or measured == last_measured:
            continue
        last_measured = measured
        # What a run had measured beyond the checkpoint from which it was resumed is not part of it.
        while steps and steps[-1] >= at:
            for column in (steps, seconds, values):
                column.pop()
        steps.append(float(at))
        seconds.append(offset + before)
        values.append(float(value))
        deviation = row.get("evaluator/return_std") if metric == RETURN else None
    if not values:
        raise _Unusable(f"it has no {metric}")
    return RunResult(
        name=name,
        seed=int(settings["seed"]),
        settings={key: value for key, value in settings.items() if key not in _NOT_COMPARED},
        steps=np.array(steps),
        seconds=np.array(seconds),
        values=np.array(values),
        deviation=deviation,
        total_steps=int(rows[-1][total]),
        total_seconds=offset + before,
        counted="learner steps" if is_offline else "environment steps",
    )


def _is_offline(rows: Sequence[dict[str, Any]]) -> bool:
    """Returns whether a run learned without an environment step, from recorded episodes alone."""
    if not rows or rows[-1]["environment_steps"]:
        return False
    learner_steps = rows[-1].get("learner_steps")
    return isinstance(learner_steps, int) and learner_steps > 0
