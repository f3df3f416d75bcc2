"""The definition of a search: many runs of an experiment with different settings, the best of which is a recipe."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_type_hints

from ...atomic_files import write_file
from ...errors import CallboardError, unknown
from ...setting_types import converted, field_types
from ..experiment import Experiment
from ..launchers.registry import LAUNCHERS, launcher_class, make_launcher
from ..settings import parse_experiment
from ..yaml_files import format_yaml, read_yaml
from .records import Mode, Trial, TuneDirectory
from .search_space import SearchSpace, Values, describe, parse_search, vary_recipe

_FIXED = {
    "agent": "trials of different agents cannot be compared; name a field of it, such as agent.optimizer.learning_rate",
    "agent.name": "trials of different agents cannot be compared",
    "run_dir": "every trial has a directory of its own",
    "env": "trials on different environments cannot be compared",
    "max_steps": "trials are compared by their environment steps",
    "evaluator": "trials are compared by their evaluations",
    "evaluate_every": "trials are compared by their evaluations",
    "stop_return": "trials are compared by their returns",
}
_EVALUATOR_METRICS = (
    "evaluator/return",
    "evaluator/return_std",
    "evaluator/return_min",
    "evaluator/return_max",
    "evaluator/episode_length",
    "evaluator/generalization_gap",
)
_NODES = ("evaluator", "actor", "learner", "replay")


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The definition of a search.

    Attributes:
      settings: settings of the experiment that is varied, as in a recipe.
      search: the `--search` options.
      samples: number of trials; under `pbt`, the size of the population.
      scheduler: `asha` stops trials early that perform worse than others did after as many steps; `pbt` lets bad trials
        continue with the weights of good ones and with similar settings; `none` runs all trials to their end.
      metric: a name in `metrics.jsonl`.
      mode: whether a higher value is better (max) or a lower one (min).
      launcher: launcher of each trial, one that runs all nodes in one process: inline or threads.
      grace_steps: environment steps before `asha` stops a trial; None takes an eighth of `max_steps`, or
        `evaluate_every` if that is more.
      reduction_factor: under `asha`, one in this many trials continues from one rung to the next, which is this many
        times higher.
      perturb_every: environment steps between two decisions of `pbt` on a trial; None takes `grace_steps`.
      concurrent: number of trials at a time; None takes as many as this machine, or a Ray cluster that was joined, has
        CPUs for, and under `pbt` all of them.
      cpus_per_trial: CPUs that Ray reserves for each trial; TensorFlow uses as many threads for one operation.
      gpus_per_trial: GPUs that Ray reserves for each trial.
    """

    settings: dict[str, Any]
    search: list[str]
    samples: int = 16
    scheduler: Literal["asha", "pbt", "none"] = "asha"
    metric: str = "evaluator/return"
    mode: Mode = "max"
    launcher: str = "inline"
    grace_steps: int | None = None
    reduction_factor: int = 4
    perturb_every: int | None = None
    concurrent: int | None = None
    cpus_per_trial: float = 1.0
    gpus_per_trial: float = 0.0

    def experiment(self, values: Values, also: Mapping[str, Any]) -> Experiment:
        """Returns the experiment of a trial, with its values of the searched settings and other settings."""
        return parse_experiment(None, {**vary_recipe(self.settings, values), **also}, [])

    def space(self) -> SearchSpace:
        return parse_search(self.search, _FIXED)

    def samples_of_all(self) -> list[Values]:
        """Returns the values of every trial, deterministic for a seed."""
        return self.space().samples(self.samples, self.settings["seed"])

    @property
    def evaluate_every(self) -> int:
        return self.settings["evaluate_every"]

    @property
    def max_steps(self) -> int:
        return self.settings["max_steps"]

    @property
    def first_rung(self) -> int:
        return self.grace_steps or max(self.evaluate_every, self.max_steps // 8)

    @property
    def perturbation_interval(self) -> int:
        return self.perturb_every or self.first_rung

    @property
    def trials_at_a_time(self) -> int:
        """Number of concurrent trials.

        Under PBT it is all of them: its decisions would end a trial that has to wait, and start it again after another
        trial ends.
        """
        processors = max(1, int(len(os.sched_getaffinity(0)) / self.cpus_per_trial))
        return self.concurrent or (self.samples if self.scheduler == "pbt" else processors)

    def check(self) -> None:
        """Checks the search before anything starts.

        Raises:
          CallboardError: one line that says what is wrong and how to fix it.
        """
        self._check_launcher()
        for name in ("scheduler", "mode"):
            known = get_args(get_type_hints(Tuning)[name])
            if getattr(self, name) not in known:
                raise CallboardError(f"--{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        for name in ("samples", "grace_steps", "perturb_every", "concurrent"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CallboardError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        if self.reduction_factor < 2:
            raise CallboardError(f"--reduction-factor must be at least 2, not {self.reduction_factor}")
        if not 0 < self.cpus_per_trial < math.inf or not 0 <= self.gpus_per_trial < math.inf:
            raise CallboardError("--cpus-per-trial must be more than 0, and --gpus-per-trial at least 0")
        if self.scheduler == "pbt" and self.samples < 2:
            raise CallboardError("--scheduler pbt needs a population: --samples 2 or more")
        self._check_metric()
        if self.evaluate_every >= self.max_steps:
            raise CallboardError(
                f"trials are compared every evaluate_every ({self.evaluate_every:,}) environment steps, and each would "
                f"end after {self.max_steps:,}; lower --evaluate-every or raise --max-steps"
            )
        if self.first_rung > self.max_steps:
            raise CallboardError(f"--grace-steps must be at most max_steps ({self.max_steps}), not {self.first_rung}")
        if self.scheduler == "pbt" and self.perturbation_interval < self.evaluate_every:
            raise CallboardError(
                f"--perturb-every must be at least evaluate_every ({self.evaluate_every}), not {self.perturb_every}"
            )
        self.space().check(self.samples_of_all(), self._check_values)

    def _check_launcher(self) -> None:
        known = [name for name in LAUNCHERS if launcher_class(name).in_this_process is True]
        if launcher_class(self.launcher).in_this_process is not True:
            raise CallboardError(f"--launcher must be one of {', '.join(known)}, not {self.launcher!r}")

    def _check_metric(self) -> None:
        node, _, _ = self.metric.partition("/")
        known: Sequence[str] = _EVALUATOR_METRICS if node == "evaluator" else ()
        if node not in _NODES or (known and self.metric not in known):
            hint = "name one of those in metrics.jsonl, such as evaluator/return"
            raise unknown("metric", self.metric, _EVALUATOR_METRICS, hint)
        if known and not self.settings["evaluator"]:
            raise CallboardError(f"the metric {self.metric} needs the evaluator; leave evaluator at true")

    def _check_values(self, values: Values) -> None:
        experiment = self.experiment(values, {})
        make_launcher(self.launcher).check(experiment)
        experiment.check()


def read_tuning(path: pathlib.Path) -> Tuning:
    """Reads the definition of a search that was written to a file.

    Raises:
      CallboardError: the file is not one.
    """
    content, types = read_yaml(path), field_types(Tuning)
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise CallboardError(f"{path} does not hold a search: begin it anew in another directory")
    for key in content:
        if key not in types:
            raise CallboardError(f"{path}: {unknown('key', str(key), types)}")
    try:
        tuning = Tuning(**{"search": [], **{key: converted(key, value, types[key]) for key, value in content.items()}})
        tuning.check()
    except (CallboardError, KeyError) as error:
        raise CallboardError(f"{path}: {error}") from error
    return tuning


def write_best(tuning: Tuning, directory: TuneDirectory, best: Trial) -> None:
    """Writes the settings of the best trial as a recipe."""
    lines = [
        f"# The best of {tuning.samples} trials, number {best.number:02d}: {tuning.metric} {best.best:.6g} after "
        f"{best.best_steps:,} environment steps,",
        f"# with {describe(best.best_values)}.",
    ]
    if best.takeovers:
        lines.append("# Its weights came from other trials with other settings: a run of its own may do less well.")
    settings = vary_recipe(tuning.settings, best.best_values)
    write_file(directory.best, "\n".join(lines) + "\n" + format_yaml(settings))
