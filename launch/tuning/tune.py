"""`callboard tune`: many runs of an experiment with different settings; the best one is written as a recipe."""

import argparse
import dataclasses
import datetime
import math
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_type_hints

from rich.console import Console

from ...atomic_files import write_file
from ...errors import CallboardError, nearest, unknown
from ..cli.command_parser import CommandParser
from ..experiment import Experiment
from ..run_directory.remote_storage import is_url
from ..setting_types import converted, field_types
from ..settings import experiment_settings, parse_experiment, read_recipe, setting_types
from ..start_checks import check_launcher_can, default_run_directory
from ..yaml_files import format_yaml, read_yaml
from .records import Mode, Trial, TuneDirectory, best_trial, trials_table
from .search_space import SearchSpace, Values, describe, parse_search, with_values

_FIXED = {
    "agent": "trials of different agents cannot be compared; name a field of it, such as agent.learning_rate",
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
_WIDE = 200
"""Width of a line where there is no terminal."""


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
      launcher: launcher of each trial: inline or threads.
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
    launcher: Literal["inline", "threads"] = "inline"
    grace_steps: int | None = None
    reduction_factor: int = 4
    perturb_every: int | None = None
    concurrent: int | None = None
    cpus_per_trial: float = 1.0
    gpus_per_trial: float = 0.0

    def experiment(self, values: Values, also: Mapping[str, Any]) -> Experiment:
        """Return the experiment of a trial, with its values of the searched settings and other settings."""
        return parse_experiment(None, {**with_values(self.settings, values), **also}, [])

    def space(self) -> SearchSpace:
        return parse_search(self.search, _FIXED)

    def samples_of_all(self) -> list[Values]:
        """Return the values of every trial, deterministic for a seed."""
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
        """Check the search before anything starts.

        Raises:
          CallboardError: one line that says what is wrong and how to fix it.
        """
        for name in ("scheduler", "mode", "launcher"):
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
                f"end after {self.max_steps:,}: lower --evaluate-every or raise --max-steps"
            )
        if self.first_rung > self.max_steps:
            raise CallboardError(f"--grace-steps must be at most max_steps ({self.max_steps}), not {self.first_rung}")
        if self.scheduler == "pbt" and self.perturbation_interval < self.evaluate_every:
            raise CallboardError(
                f"--perturb-every must be at least evaluate_every ({self.evaluate_every}), not {self.perturb_every}"
            )
        self.space().check(self.samples_of_all(), self._check_values)

    def _check_metric(self) -> None:
        node, _, _ = self.metric.partition("/")
        known: Sequence[str] = _EVALUATOR_METRICS if node == "evaluator" else ()
        if node not in _NODES or (known and self.metric not in known):
            hint = "name one of those in metrics.jsonl, such as evaluator/return"
            raise unknown("metric", self.metric, _EVALUATOR_METRICS, hint)
        if known and not self.settings["evaluator"]:
            raise CallboardError(f"the metric {self.metric} needs the evaluator: leave evaluator at true")

    def _check_values(self, values: Values) -> None:
        experiment = self.experiment(values, {})
        check_launcher_can(self.launcher, experiment)
        experiment.check()


def tune_command(arguments: list[str]) -> int:
    """Run `callboard tune`; return its exit code."""
    parser = _parser()
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    known, options = parser.parse_known_args(arguments[1:] if agent else arguments)
    if known.help:
        Console(highlight=False, soft_wrap=True, markup=False).print(parser.format_help().rstrip())
        return 0
    given = {name: value for name, value in vars(known).items() if value is not None}
    for name in ("help", "resume", "recipe", "run_dir", "ray_address", "trust"):
        given.pop(name, None)
    if known.resume:
        directory, tuning = _resumed(known, agent, given, options)
    else:
        directory, tuning = _new(known, agent, given, options)
    _check_ray()
    return _tune(tuning, directory, known.resume, known.ray_address)


def _parser() -> CommandParser:
    parser = CommandParser(
        "callboard tune",
        usage="callboard tune [AGENT] [--recipe NAME] --search KEY=DISTRIBUTION ... [options]",
        description="Searches settings on Ray Tune.  Every option of `callboard train` is one of the trials' too.",
        add_help=False,
    )
    add = parser.add_argument
    add("--recipe", help="name of a recipe, or path of a YAML file")
    add(
        "--search",
        action="append",
        metavar="KEY=DISTRIBUTION",
        help="uniform(a,b), loguniform(a,b), randint(a,b) or "
        "choice(a,b,...), such as agent.learning_rate=loguniform(1e-4,1e-2); may be given several times",
    )
    add("--samples", type=int, help="number of trials (16)")
    add("--scheduler", help="asha (stops bad trials early; default), pbt (population based training) or none")
    add("--metric", help="what trials are compared by, a name in metrics.jsonl (evaluator/return)")
    add("--mode", help="max (default) or min")
    add("--launcher", help="of each trial: inline (default) or threads")
    add("--grace-steps", type=int, help="asha stops no trial before these environment steps (max_steps / 8)")
    add("--reduction-factor", type=int, help="one of so many trials goes on from rung to rung (4)")
    add("--perturb-every", type=int, help="environment steps between pbt's decisions on a trial (max_steps / 8)")
    add("--concurrent", type=int, help="trials at a time (as many as there are processors for; all under pbt)")
    add("--cpus-per-trial", type=float, help="processors for each trial (1)")
    add("--gpus-per-trial", type=float, help="GPUs for each trial (0)")
    add("--run-dir", type=_local_path, help="directory of all trials; a new one under runs/ if not given")
    add("--resume", action="store_true", help="go on with the search in --run-dir")
    add("--trust", action="store_true", help="resume a search whose files others can write: their content can run code")
    add(
        "--ray-address",
        help="of a Ray cluster, auto for one that runs here, or local; otherwise RAY_ADDRESS, one that runs here, "
        "or a new one",
    )
    add("-h", "--help", action="store_true", help="show this help")
    return parser


def _local_path(text: str) -> pathlib.Path:
    if is_url(text):
        raise CallboardError(f"--run-dir of a search must be a path, not {text}: take storage that all machines share")
    return pathlib.Path(text)


def _new(
    known: argparse.Namespace, agent: str | None, given: dict[str, Any], options: list[str]
) -> tuple[TuneDirectory, Tuning]:
    recipe = read_recipe(known.recipe) if known.recipe else {}
    _check_option_names(agent or (recipe.get("agent") or {}).get("name"), options)
    base = parse_experiment(agent, {key: value for key, value in recipe.items() if key != "run_dir"}, options)
    tuning = Tuning(settings=_settings_of(base), **{"search": [], **given})
    path = known.run_dir
    if path is None:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = tuning.settings["agent"]["name"].rpartition(":")[2].lower()
        path = default_run_directory(base, f"tune-{name}", now)
    directory = TuneDirectory(path)
    if directory.settings.exists():
        raise CallboardError(
            f"there is a search in {path} already: go on with it by --resume, or name another directory"
        )
    if (directory.path / "experiment.yaml").exists():
        raise CallboardError(f"there is a run in {path} already: name another directory")
    tuning.check()
    return directory, tuning


def _resumed(
    known: argparse.Namespace, agent: str | None, given: dict[str, Any], options: list[str]
) -> tuple[TuneDirectory, Tuning]:
    if known.run_dir is None:
        raise CallboardError("--resume needs the directory of the search: --run-dir runs/...")
    if agent or known.recipe or given or options:
        raise CallboardError(
            "a search is resumed with the settings that it began with: give nothing but --run-dir and --ray-address"
        )
    directory = TuneDirectory(known.run_dir)
    if not directory.settings.exists():
        raise CallboardError(f"there is no search to resume in {known.run_dir}: it has no {directory.settings.name}")
    if not known.trust:
        directory.check_owner()
    return directory, _read_tuning(directory.settings)


def _read_tuning(path: pathlib.Path) -> Tuning:
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


def _settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as settings of a recipe, without a run directory."""
    settings = experiment_settings(experiment)
    del settings["run_dir"]
    return settings


def _check_option_names(agent: str | None, options: Sequence[str]) -> None:
    """Refuse unknown options of `train` that resemble an option of `tune`."""
    own = [option for action in _parser()._actions for option in action.option_strings]
    theirs = [] if agent is None else [f"--{name}" for name in setting_types(agent)]
    for option in options:
        name = option.partition("=")[0]
        if name.startswith("--") and nearest(name, [*own, *(name.replace("_", "-") for name in theirs)]) in own:
            raise unknown("option", name, own)


def _check_ray() -> None:
    try:
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise CallboardError(f"callboard tune needs Ray: pip install 'callboard[ray]' ({error})") from error


def _tune(tuning: Tuning, directory: TuneDirectory, resume: bool, ray_address: str | None) -> int:
    from .search import run_trials

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if not console.is_terminal:
        console.width = _WIDE
    signal_number = None
    trials = directory.read_trials()
    if len(trials) < tuning.samples or any(trial.state in ("unfinished", "failed") for trial in trials.values()):
        signal_number = run_trials(tuning, directory, resume, ray_address)
        trials = directory.read_trials()
    ordered = [trials[number] for number in sorted(trials)]
    if ordered:
        console.print(trials_table(ordered, tuning.metric, tuning.mode))
    states = [trial.state for trial in ordered]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.print(f"{len(ordered)} of {tuning.samples} trials: {counts or 'none has begun'}")
    for trial in ordered:
        if trial.error:
            console.print(f"trial {trial.number:02d} failed: {trial.error}")
    best = best_trial(ordered, tuning.mode)
    if best is not None:
        _write_best(tuning, directory, best)
        shown = os.path.relpath(directory.best)
        console.print(
            f"best: trial {best.number:02d} with {tuning.metric} {best.best:.4g}: {describe(best.best_values)}"
        )
        console.print(f"callboard train --recipe {shlex.quote(shown)} --launcher {tuning.launcher}")
    if signal_number is not None:
        again = f"; go on: callboard tune --resume --run-dir {shlex.quote(os.path.relpath(directory.path))}"
        # If it was stopped before it had found its machines, there is nothing to resume.
        console.print(f"stopped{again if directory.settings.exists() else ''}")
        return 128 + signal_number
    return 0 if any(state != "failed" for state in states) else 1


def _write_best(tuning: Tuning, directory: TuneDirectory, best: Trial) -> None:
    lines = [
        f"# The best of {tuning.samples} trials, number {best.number:02d}: {tuning.metric} {best.best:.6g} after "
        f"{best.best_steps:,} environment steps,",
        f"# with {describe(best.best_values)}.",
    ]
    if best.takeovers:
        lines.append("# Its weights came from other trials with other settings: a run of its own may do less well.")
    settings = with_values(tuning.settings, best.best_values)
    write_file(directory.best, "\n".join(lines) + "\n" + format_yaml(settings))
