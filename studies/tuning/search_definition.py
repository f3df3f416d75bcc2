"""The definition of a search: many runs of an experiment with different settings, the best of which is a recipe."""

import dataclasses
import importlib.util
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Interval

from ...agents.agent_names import agent_name
from ...errors import CallboardError, unknown
from ...files.atomic_files import write_file
from ...launch.experiments.experiment import Experiment
from ...launch.experiments.experiment_checks import metrics_known
from ...launch.experiments.option_parsing import option_name
from ...launch.experiments.run_checks import check_experiment
from ...launch.experiments.settings import parse_experiment, plain
from ...launch.experiments.stop_conditions import check_metric
from ...launch.experiments.yaml_files import format_yaml, read_yaml
from ...launch.launchers.registry import LAUNCHERS, launcher_class, make_launcher
from ...launch.run_directory.metric_names import METRICS
from ...messages.install_commands import install_command
from ...settings.named_objects import import_object, pickled_with_program, unpickle_with_program
from ...settings.nested_settings import Field, declared_fields
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, converted, given_fields, shown
from .records import Mode, Trial, TuneDirectory
from .search_space import SearchSpace, Values, parse_search, values_text, vary_recipe

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
_NOT_COMPARED = {metric.name for metric in METRICS["Evaluations"]}.difference(_EVALUATOR_METRICS)
"""Metrics of evaluations that do not depend on how good the policy is."""
_SAMPLES, _MOST_TRIALS = 16, 10_000
_OWN = "trial."
"""Prefix of searched settings that only a trial function of the user's own receives."""
OF_EVERY_SEARCH = ("seed", "max_steps", "evaluate_every")
"""Settings that a search has even if its trials are not runs of Callboard."""
NODES = "nodes"
"""`cpus_per_trial` that counts the actors and learners of each trial."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The definition of a search.

    All fields but `settings` are options of the command.

    Attributes:
      settings: settings of the experiment that is varied, as in a recipe.
      search: KEY=DISTRIBUTION: a setting such as `agent.optimizer.learning_rate`, and uniform(a,b), loguniform(a,b),
        randint(a,b), choice(a,b,...) or grid(a,b,...); may be given several times.
      samples: number of trials, 16 if it is null; under `pbt`, the size of the population.  With grids, how often all
        of their combinations are tried, once if it is null.
      sampler: `random` samples all values in advance; `optuna` chooses those of a trial by the results of earlier ones
        (TPE of Optuna).
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
      cpus_per_trial: CPUs that Ray reserves for each trial; TensorFlow uses as many threads for one operation.  `nodes`
        computes them from the settings of each trial: one for each actor and each learner, or one if they run in one
        thread.  package.module:function is called with the settings and returns the number.
      gpus_per_trial: GPUs that Ray reserves for each trial.
      trial: package.module:function that is called for each trial, with its settings and a `Reporter`, in place of a
        training run of Callboard.
    """

    settings: dict[str, Any]
    search: list[str] = dataclasses.field(default_factory=list)
    samples: PositiveInt | None = None
    sampler: Literal["random", "optuna"] = "random"
    scheduler: Literal["asha", "pbt", "none"] = "asha"
    metric: str = "evaluator/return"
    mode: Mode = "max"
    launcher: str = "inline"
    grace_steps: PositiveInt | None = None
    reduction_factor: Annotated[int, Interval(ge=2)] = 4
    perturb_every: PositiveInt | None = None
    concurrent: PositiveInt | None = None
    cpus_per_trial: PositiveFloat | str = 1.0
    gpus_per_trial: NonNegativeFloat = 0.0
    trial: str | Callable[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), pickled_with_program(dict(vars(self))))

    @property
    def has_experiment(self) -> bool:
        """Whether the trials are described by settings of an experiment; a function of the user's own needs none."""
        return "agent" in self.settings

    def experiment(self, values: Values, also: Mapping[str, Any]) -> Experiment:
        """Returns the experiment of a trial, with its values of the searched settings and other settings."""
        own = {key: value for key, value in values.items() if not (self.trial and key.startswith(_OWN))}
        return parse_experiment(None, {**vary_recipe(self.settings, own), **also}, [])

    def trial_function(self) -> Callable[..., Any] | None:
        """Returns the trial function of the user's own, if there is one.

        Raises:
          CallboardError: it cannot be imported, or is no function.
        """
        found = import_object("trial function", self.trial) if isinstance(self.trial, str) else self.trial
        if found is not None and not callable(found):
            raise CallboardError(f"--trial {self.trial} is no function; name one that takes settings and a reporter")
        return found

    def cpus(self, values: Values) -> float:
        """Returns the CPUs of a trial with these values.

        Raises:
          CallboardError: the function that computes them returns something else.
        """
        if not isinstance(self.cpus_per_trial, str):
            return self.cpus_per_trial
        if self.cpus_per_trial == NODES:
            if self.trial is None and launcher_class(self.launcher).one_thread:
                return 1.0
            experiment = self.experiment(values, {})
            return float(experiment.actors + experiment.learners)
        found = import_object("function", self.cpus_per_trial)(vary_recipe(self.settings, values))
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
            raise CallboardError(f"{self.cpus_per_trial} must return a number of CPUs above 0, not {shown(found)}")
        return float(found)

    def to_file(self) -> dict[str, Any]:
        """Returns all fields as plain values."""
        return plain({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def space(self) -> SearchSpace:
        return parse_search(self.search, _FIXED)

    def samples_of_all(self) -> list[Values]:
        """Returns the values of every trial, deterministic for a seed."""
        space = self.space()
        return space.samples(self._samples(space), self.settings["seed"])

    def _samples(self, space: SearchSpace) -> int:
        return self.samples or (1 if space.has_grid else _SAMPLES)

    @property
    def trials(self) -> int:
        """Number of trials."""
        space = self.space()
        return space.count(self._samples(space))

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
        smallest = min(map(self.cpus, self.samples_of_all())) if isinstance(self.cpus_per_trial, str) else 0.0
        processors = max(1, int(len(os.sched_getaffinity(0)) / (smallest or float(self.cpus_per_trial))))
        return self.concurrent or (self.trials if self.scheduler == "pbt" else processors)

    def check(self) -> None:
        """Checks the search before anything starts.

        Raises:
          CallboardError: one line that says what is wrong and how to fix it.
        """
        for name, field in tuning_options().items():
            if not callable(getattr(self, name)):
                converted(option_name(name), getattr(self, name), field.hint)
        if self.trials > _MOST_TRIALS:
            raise CallboardError(
                f"the search has {self.trials:,} trials, more than {_MOST_TRIALS:,}; lower --samples or shorten grids"
            )
        if self.trial is None:
            if not self.has_experiment:
                raise CallboardError("a search needs an agent or a recipe, or --trial package.module:function")
            self._check_launcher()
        self._check_cpus()
        self.trial_function()
        if self.scheduler == "pbt" and self.trials < 2:
            raise CallboardError("--scheduler pbt needs a population: --samples 2 or more")
        self._check_sampler()
        if self.trial is None:
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

    def _check_cpus(self) -> None:
        if isinstance(self.cpus_per_trial, str) and self.cpus_per_trial != NODES and ":" not in self.cpus_per_trial:
            raise CallboardError(
                f"--cpus-per-trial must be a number above 0, nodes, or package.module:function, not "
                f"{self.cpus_per_trial!r}"
            )
        if self.cpus_per_trial == NODES and not self.has_experiment:
            raise CallboardError("--cpus-per-trial nodes counts actors and learners; name an agent or a recipe")

    def _check_sampler(self) -> None:
        if self.sampler == "random":
            return
        if self.scheduler == "pbt":
            raise CallboardError("pbt changes settings itself; use --sampler optuna with --scheduler asha or none")
        if self.space().has_grid:
            raise CallboardError("--sampler optuna tries no grid; write choice(...) in place of grid(...)")
        if importlib.util.find_spec("optuna") is None:
            raise CallboardError(f"--sampler optuna needs Optuna: {install_command('callboard[optuna]')}")

    def _check_launcher(self) -> None:
        known = [name for name in LAUNCHERS if launcher_class(name).in_this_process is True]
        if launcher_class(self.launcher).in_this_process is not True:
            raise CallboardError(f"--launcher must be one of {', '.join(known)}, not {self.launcher!r}")

    def _check_metric(self) -> None:
        if "/" not in self.metric or self.metric in _NOT_COMPARED:
            hint = "name one of those in metrics.jsonl with a slash that tell policies apart, such as evaluator/return"
            raise unknown("metric", self.metric, _EVALUATOR_METRICS, hint)

    def _check_values(self, values: Values) -> None:
        self.cpus(values)
        if not self.has_experiment:
            vary_recipe(self.settings, values)
            return
        experiment = self.experiment(values, {})
        make_launcher(self.launcher).check(experiment)
        check_experiment(experiment)
        if self.trial is None:
            agent = None if experiment.has_agents else agent_name(experiment.agent)
            what = f"--metric {self.metric}"
            check_metric(self.metric, *metrics_known(experiment, agent), setting="--metric", what=what)


def _unpickled(kind: type[Tuning], pickled: bytes) -> Tuning:
    return kind(**unpickle_with_program(pickled))


def tuning_options() -> dict[str, Field]:
    """Returns the fields that are options of the command."""
    return {name: field for name, field in declared_fields(Tuning).items() if name != "settings"}


def read_tuning(path: pathlib.Path) -> Tuning:
    """Reads the definition of a search that was written to a file.

    Raises:
      CallboardError: the file is not one.
    """
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise CallboardError(f"{path} does not hold a search: begin it anew in another directory")
    try:
        tuning = converted("", content, Tuning)
        needed = given_fields(Experiment, {name: tuning.settings.get(name) for name in OF_EVERY_SEARCH})
        tuning = dataclasses.replace(tuning, settings={**tuning.settings, **needed})
        tuning.check()
    except CallboardError as error:
        raise CallboardError(f"{path}: {error}") from error
    return tuning


def write_best(tuning: Tuning, directory: TuneDirectory, best: Trial) -> None:
    """Writes the settings of the best trial as a recipe."""
    lines = [
        f"# The best of {tuning.trials} trials, number {best.number:02d}: {tuning.metric} {best.best:.6g} after "
        f"{best.best_steps:,} environment steps,",
        f"# with {values_text(best.best_values)}.",
    ]
    if best.takeovers:
        lines.append("# Its weights came from other trials with other settings: a run of its own may do less well.")
    settings = vary_recipe(tuning.settings, best.best_values)
    write_file(directory.best, "\n".join(lines) + "\n" + format_yaml(settings))
