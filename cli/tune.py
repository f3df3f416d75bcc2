"""`callboard tune`: searches settings with many runs, and writes the best ones as a recipe."""

import argparse
import functools
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ..errors import CallboardError, printable
from ..launch.experiments.experiment import Experiment
from ..launch.experiments.new_or_resumed import default_run_directory, unique_ending
from ..launch.experiments.option_parsing import merge_options
from ..launch.experiments.settings import parse_experiment, read_recipes
from ..launch.plain_names import in_command
from ..settings.nested_settings import declared_fields
from ..studies.comparison.curve_plots import check_plot
from ..studies.tuning.records import TuneDirectory, best_trial, trials_table
from ..studies.tuning.search_definition import OF_EVERY_SEARCH, Tuning, read_tuning, tuning_options, write_best
from ..studies.tuning.search_plots import plot_search
from ..studies.tuning.search_space import values_text
from ..studies.tuning.tune_function import check_ray, new_search, settings_of_trials
from .command_parser import CommandParser, field_values
from .experiment_options import RECIPE_HELP, check_option_names, local_directory, parse_arguments

_WIDE = 200
"""Width of a line where there is no terminal."""


def main(arguments: Sequence[str]) -> int:
    parser = _parser()
    known, agent, options = parse_arguments(parser, arguments)
    if known.help:
        Console(highlight=False, soft_wrap=True, markup=False).print(parser.format_help().rstrip())
        return 0
    given = field_values(known, tuning_options())
    if known.plot:
        check_plot(None)
    if known.plot and not (known.resume or agent or known.recipe or given or options):
        return _plot_only(known.run_dir, known.trust)
    if known.resume:
        directory, tuning = _resumed(known, agent, given, options)
    else:
        directory, tuning = _new(known, agent, given, options)
    check_ray()
    code = _tune(tuning, directory, known.resume, known.ray_address)
    if known.plot and any(trial.best is not None for trial in directory.read_trials(tuning.space()).values()):
        _plot(tuning, directory)
    return code


def _plot_only(run_dir: pathlib.Path | None, trust: bool) -> int:
    if run_dir is None:
        raise CallboardError("--plot needs the directory of a search: --run-dir runs/..., or a search to start")
    directory = TuneDirectory(run_dir)
    if not directory.settings.exists():
        raise CallboardError(f"there is no search to plot in {run_dir}: it has no {directory.settings.name}")
    if not trust:
        directory.check_owner()
    _plot(read_tuning(directory.settings), directory)
    return 0


def _plot(tuning: Tuning, directory: TuneDirectory) -> None:
    path = directory.path / "search.png"
    plot_search(tuning, list(directory.read_trials(tuning.space()).values()), path)
    print(printable(f"plot: {os.path.relpath(path)}"))


def _parser() -> CommandParser:
    parser = CommandParser(
        "callboard tune",
        usage="callboard tune [AGENT] [--recipe NAME] --search KEY=DISTRIBUTION ... [options]",
        description="Searches settings on Ray Tune.  All settings of `callboard train` are options too.",
        add_help=False,
    )
    add = parser.add_argument
    add("--recipe", action="append", help=RECIPE_HELP)
    parser.add_fields(tuning_options())
    add(
        "--run-dir",
        type=functools.partial(local_directory, "search"),
        help="directory of all trials; a new one under runs/ if not given",
    )
    add("--resume", action="store_true", help="continue the search in --run-dir")
    add("--plot", action="store_true", help="write a plot of the search, or of the one in --run-dir without a new one")
    add("--trust", action="store_true", help="take a search whose files others can write: their content can run code")
    add(
        "--ray-address",
        help="address of a Ray cluster, auto for one that runs here, or local; otherwise RAY_ADDRESS, one that runs "
        "here, or a new one",
    )
    add("-h", "--help", action="store_true", help="show this help")
    return parser


def _new(
    known: argparse.Namespace, agent: str | None, given: dict[str, Any], options: list[str]
) -> tuple[TuneDirectory, Tuning]:
    check_option_names(options, _parser().options)
    recipe = read_recipes(known.recipe or ())
    if given.get("trial") and agent is None and not recipe:
        tuning = Tuning(settings=_settings_without_experiment(options), **given)
        new_path = pathlib.Path("runs") / f"tune-{given['trial'].rpartition(':')[2]}-{unique_ending()}"
    else:
        base = parse_experiment(agent, {key: value for key, value in recipe.items() if key != "run_dir"}, options)
        tuning = Tuning(settings=settings_of_trials(base), **given)
        name = tuning.settings["agent"]["name"].rpartition(":")[2].lower()
        new_path = default_run_directory(base, f"tune-{name}")
    path = known.run_dir or new_path
    return new_search(tuning, path), tuning


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


def _settings_without_experiment(options: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of a search whose trial function needs no experiment: its length and its seed."""
    fields = {name: field for name, field in declared_fields(Experiment).items() if name in OF_EVERY_SEARCH}
    values: dict[str, Any] = {name: fields[name].default for name in fields}
    return merge_options(values, ["--evaluate-every=1", *options], fields)


def _tune(tuning: Tuning, directory: TuneDirectory, resume: bool, ray_address: str | None) -> int:
    from ..studies.tuning.search import run_trials

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if not console.is_terminal:
        console.width = _WIDE
    signal_number = None
    trials = directory.read_trials(tuning.space())
    if len(trials) < tuning.trials or any(trial.state in ("unfinished", "failed") for trial in trials.values()):
        signal_number = run_trials(tuning, directory, resume, ray_address)
        trials = directory.read_trials(tuning.space())
    ordered = [trials[number] for number in sorted(trials)]
    if ordered:
        console.print(trials_table(ordered, tuning.metric, tuning.mode))
    states = [trial.state for trial in ordered]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.print(f"{len(ordered)} of {tuning.trials} trials: {counts or 'none was started'}")
    for trial in ordered:
        if trial.error:
            console.print(f"trial {trial.number:02d} failed: {printable(trial.error)}")
    best = best_trial(ordered, tuning.mode)
    if best is not None:
        write_best(tuning, directory, best)
        shown = os.path.relpath(directory.best)
        found = f"best: trial {best.number:02d} with {tuning.metric} {best.best:.4g}: {values_text(best.best_values)}"
        console.print(printable(found))
        if tuning.trial is None:
            console.print(
                printable(f"callboard train --recipe {shlex.quote(in_command(shown))} --launcher {tuning.launcher}")
            )
    if signal_number is not None:
        words = ["callboard", "tune", "--resume", "--run-dir", in_command(os.path.relpath(directory.path))]
        words += [] if ray_address is None else ["--ray-address", ray_address]
        again = f"; continue: {shlex.join(words)}"
        # A search that was stopped before it had its machines cannot be resumed.
        console.print(printable(f"stopped{again if directory.settings.exists() else ''}"))
        return 128 + signal_number
    return 0 if any(state != "failed" for state in states) else 1
