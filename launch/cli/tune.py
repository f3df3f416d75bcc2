"""`callboard tune`: searches settings with many runs, and writes the best ones as a recipe."""

import argparse
import dataclasses
import datetime
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ...errors import CallboardError
from ..experiment import Experiment
from ..run_directory.new_or_resumed import default_run_directory
from ..run_directory.remote_storage import is_url
from ..settings import experiment_settings, parse_experiment, read_recipe
from ..tuning.records import TuneDirectory, best_trial, trials_table
from ..tuning.search_definition import Tuning, read_tuning, write_best
from ..tuning.search_space import describe
from ..warm_start_settings import absolute_source
from .command_parser import CommandParser
from .experiment_options import check_option_names, parse_arguments

_WIDE = 200
"""Width of a line where there is no terminal."""


def main(arguments: Sequence[str]) -> int:
    parser = _parser()
    known, agent, options = parse_arguments(parser, arguments)
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
        description="Searches settings on Ray Tune.  All settings of `callboard train` are options too.",
        add_help=False,
    )
    add = parser.add_argument
    add("--recipe", help="name of a recipe, or path of a YAML file")
    add(
        "--search",
        action="append",
        metavar="KEY=DISTRIBUTION",
        help="uniform(a,b), loguniform(a,b), randint(a,b) or "
        "choice(a,b,...), such as agent.optimizer.learning_rate=loguniform(1e-4,1e-2); may be given several times",
    )
    add("--samples", type=int, help="number of trials (16)")
    add("--scheduler", help="asha (stops bad trials early; default), pbt (population based training) or none")
    add("--metric", help="what trials are compared by, a name in metrics.jsonl (evaluator/return)")
    add("--mode", help="max (default) or min")
    add("--launcher", help="launcher of each trial: inline (default) or threads")
    add("--grace-steps", type=int, help="asha stops no trial before these environment steps (max_steps / 8)")
    add("--reduction-factor", type=int, help="one of this many trials continues from rung to rung (4)")
    add("--perturb-every", type=int, help="environment steps between pbt's decisions on a trial (max_steps / 8)")
    add("--concurrent", type=int, help="trials at a time (as many as there are CPUs for; all under pbt)")
    add("--cpus-per-trial", type=float, help="CPUs for each trial (1)")
    add("--gpus-per-trial", type=float, help="GPUs for each trial (0)")
    add("--run-dir", type=_local_path, help="directory of all trials; a new one under runs/ if not given")
    add("--resume", action="store_true", help="continue the search in --run-dir")
    add("--trust", action="store_true", help="resume a search whose files others can write: their content can run code")
    add(
        "--ray-address",
        help="address of a Ray cluster, auto for one that runs here, or local; otherwise RAY_ADDRESS, one that runs "
        "here, or a new one",
    )
    add("-h", "--help", action="store_true", help="show this help")
    return parser


def _local_path(text: str) -> pathlib.Path:
    if is_url(text):
        raise CallboardError(f"--run-dir of a search must be a path, not {text}; use storage that all machines share")
    return pathlib.Path(text)


def _new(
    known: argparse.Namespace, agent: str | None, given: dict[str, Any], options: list[str]
) -> tuple[TuneDirectory, Tuning]:
    check_option_names(options, [option for action in _parser()._actions for option in action.option_strings])
    recipe = read_recipe(known.recipe) if known.recipe else {}
    base = parse_experiment(agent, {key: value for key, value in recipe.items() if key != "run_dir"}, options)
    base = dataclasses.replace(base, init_from=absolute_source(base.init_from))
    tuning = Tuning(settings=_settings_of(base), **{"search": [], **given})
    path = known.run_dir
    if path is None:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = tuning.settings["agent"]["name"].rpartition(":")[2].lower()
        path = default_run_directory(base, f"tune-{name}", now)
    directory = TuneDirectory(path)
    if directory.settings.exists():
        raise CallboardError(
            f"there is already a search in {path}; continue it with --resume, or name another directory"
        )
    if (directory.path / "experiment.yaml").exists():
        raise CallboardError(f"there is already a run in {path}; name another directory")
    tuning.check()
    if base.init_from or base.freeze:
        from ..warm_start import check_warm_start

        for values in tuning.samples_of_all():
            experiment = tuning.experiment(values, {})
            check_warm_start(experiment, experiment.acting_layout())
    return directory, tuning


def _resumed(
    known: argparse.Namespace, agent: str | None, given: dict[str, Any], options: list[str]
) -> tuple[TuneDirectory, Tuning]:
    if known.run_dir is None:
        raise CallboardError("--resume needs the directory of the search: --run-dir runs/...")
    if agent or known.recipe or given or options:
        raise CallboardError(
            "a search is resumed with the settings that it was started with; leave out all options but --run-dir "
            "and --ray-address"
        )
    directory = TuneDirectory(known.run_dir)
    if not directory.settings.exists():
        raise CallboardError(f"there is no search to resume in {known.run_dir}: it has no {directory.settings.name}")
    if not known.trust:
        directory.check_owner()
    return directory, read_tuning(directory.settings)


def _settings_of(experiment: Experiment) -> dict[str, Any]:
    """Returns the experiment as settings of a recipe, without a run directory."""
    settings = experiment_settings(experiment)
    del settings["run_dir"]
    return settings


def _check_ray() -> None:
    try:
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise CallboardError(f"callboard tune needs Ray; install callboard[ray] ({error})") from error


def _tune(tuning: Tuning, directory: TuneDirectory, resume: bool, ray_address: str | None) -> int:
    from ..tuning.search import run_trials

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
    console.print(f"{len(ordered)} of {tuning.samples} trials: {counts or 'none was started'}")
    for trial in ordered:
        if trial.error:
            console.print(f"trial {trial.number:02d} failed: {trial.error}")
    best = best_trial(ordered, tuning.mode)
    if best is not None:
        write_best(tuning, directory, best)
        shown = os.path.relpath(directory.best)
        console.print(
            f"best: trial {best.number:02d} with {tuning.metric} {best.best:.4g}: {describe(best.best_values)}"
        )
        console.print(f"callboard train --recipe {shlex.quote(shown)} --launcher {tuning.launcher}")
    if signal_number is not None:
        again = f"; continue: callboard tune --resume --run-dir {shlex.quote(os.path.relpath(directory.path))}"
        # A search that was stopped before it had its machines cannot be resumed.
        console.print(f"stopped{again if directory.settings.exists() else ''}")
        return 128 + signal_number
    return 0 if any(state != "failed" for state in states) else 1
