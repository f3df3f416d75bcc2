"""`callboard train --seeds`: the same experiment with several seeds, one run after the other."""

import os
import pathlib
import shlex
from collections.abc import Sequence

from .. import environments
from ..errors import CallboardError, printable_lines
from ..launch.experiments.new_or_resumed import default_run_directory
from ..launch.experiments.option_parsing import option_name, option_texts
from ..launch.experiments.parts.quantities import Seed
from ..launch.experiments.run_checks import check_settings
from ..launch.experiments.settings import Settings, parse_settings, read_recipe
from ..launch.experiments.yaml_files import parse_yaml
from ..launch.launchers.launcher import Launcher
from ..launch.plain_names import in_command
from ..launch.run_directory.layout import RunDirectory
from ..launch.run_directory.remote_storage import is_url
from ..messages.caller_words import argument
from ..settings.setting_types import converted
from ..studies.comparison.compared_runs import compare_runs
from ..studies.comparison.comparison import ComparisonSettings
from ..studies.comparison.run_series import Cell, SeriesDirectory, SeriesOutcome, recipe_of, run_series
from .compare import print_comparison
from .private_network import in_same_network


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds in a text such as `1,2,3`.

    Raises:
      CallboardError: the text is something else, or names a seed twice.
    """
    try:
        seeds = converted("--seeds", parse_yaml(f"[{text}]"), list[Seed])
    except (CallboardError, ValueError) as error:
        raise CallboardError(f"--seeds must be whole numbers, such as 1,2,3, not {text!r}") from error
    if not seeds or len(set(seeds)) < len(seeds):
        raise CallboardError(f"--seeds must name at least one seed, and each once, not {text!r}")
    return seeds


def is_series(options: Sequence[str]) -> bool:
    """Returns whether `--run-dir` in options is the directory of several seeds."""
    run_dir = option_texts(options).get("run_dir")
    return run_dir is not None and not is_url(run_dir) and SeriesDirectory(pathlib.Path(run_dir)).exists


def check_series_owner(options: Sequence[str]) -> None:
    """Refuses a series of another user in `--run-dir`, whose settings name code that would run as this one.

    Raises:
      CallboardError: it belongs to another user.
    """
    path = pathlib.Path(option_texts(options).get("run_dir") or ".")
    directory = SeriesDirectory(path)
    for part in (path, directory.settings("")):
        if os.path.lexists(part) and part.lstat().st_uid != os.geteuid():
            raise CallboardError(
                f"the runs in {path} belong to another user, and their settings name code that would run as you; look "
                f"at {part} first, and if you trust it, give {argument('trust')}"
            )


def train_seeds(
    seeds: str | None,
    settings: Settings | None,
    launcher: Launcher,
    options: Sequence[str],
    launch_options: Sequence[str],
) -> int:
    """Trains with several seeds; returns the exit code of the command.

    Args:
      seeds: value of `--seeds`; None for a series that is resumed as it is.
      settings: settings of a new series; None to resume one.
      launcher: the launcher.
      options: the options that are settings.
      launch_options: options that each run gets besides its settings, such as `--launcher inline`.
    """
    given = option_texts(options)
    wanted = None if seeds is None else parse_seeds(seeds)
    if "seed" in given:
        raise CallboardError("give --seed for one run or --seeds for several, not both")
    if settings is None:
        directory, cell = _resumed(wanted, options, launch_options)
    else:
        directory, cell = _new(wanted or [], settings, launch_options)
    checked = parse_settings(None, dict(cell.recipe), [])
    experiment = launcher.fit(checked.without_agent())
    launcher.check(experiment)
    check_settings(experiment)
    environments.check(experiment.env, experiment.options_of_env)
    directory.check([cell])
    outcome = run_series(directory, [cell], print_now)
    again = ["callboard", "train", "--resume", "--run-dir", in_command(directory.path), *launch_options]
    print_end(outcome, directory, in_same_network(shlex.join(again)))
    return outcome.exit_code


def print_now(text: str) -> None:
    """Prints a line at once, before the output of the next run."""
    print(printable_lines(text), flush=True)


def print_end(outcome: SeriesOutcome, directory: SeriesDirectory, again: str) -> None:
    """Prints the table of the runs so far, and what is missing."""
    begun = [name for name in outcome.ends if directory.has_begun(name)]
    if begun:
        try:
            print_comparison(compare_runs([str(directory.run(name)) for name in begun], ComparisonSettings()))
        except CallboardError as error:
            print_now(str(error))
    print_now(outcome.summary())
    if outcome.stopped_by is not None:
        print_now(f"stopped; continue: {again}")
    if commands := commands_after(directory, outcome):
        print_now("\n".join(["Next:", *(f"  {command}" for command in commands)]))


def commands_after(directory: SeriesDirectory, outcome: SeriesOutcome) -> list[str]:
    """Returns commands that show the curves of the runs that are finished, and the policy of the first of them."""
    finished = [directory.run(name) for name, end in outcome.ends.items() if end is not None and end.is_finished]
    if not finished:
        return []
    compare = ["callboard", "compare", in_command(directory.path), "--plot", in_command(directory.path / "curves.png")]
    newest = [] if RunDirectory(finished[0]).best_policy.exists() else ["--checkpoint", "latest"]
    return [shlex.join(compare), shlex.join(["callboard", "evaluate", in_command(finished[0]), *newest])]


def _new(seeds: Sequence[int], settings: Settings, launch_options: Sequence[str]) -> tuple[SeriesDirectory, Cell]:
    path = settings.of_run.get("run_dir")
    if is_url(path):
        raise CallboardError(f"--seeds needs a run directory that is a path, not {path}: each run has one in it")
    if path is None:
        name = settings.agent.rpartition(":")[2].lower()
        path = default_run_directory(settings.without_agent(), f"{name}-seeds")
    directory = SeriesDirectory(pathlib.Path(path))
    if any(map(directory.has_begun, directory.read_progress())):
        raise CallboardError(
            f"there are already runs of several seeds in {path}; continue them with --resume, or name another directory"
        )
    return directory, Cell("", recipe_of(settings), seeds, launch_options)


def _resumed(
    seeds: Sequence[int] | None, options: Sequence[str], launch_options: Sequence[str]
) -> tuple[SeriesDirectory, Cell]:
    given = option_texts(options)
    run_dir = given.get("run_dir")
    if run_dir is None:
        raise CallboardError("--resume needs the run's directory: --run-dir runs/...")
    directory = SeriesDirectory(pathlib.Path(run_dir))
    if not is_series(options):
        raise CallboardError(f"there are no runs of several seeds in {run_dir}; start them without --resume")
    others = [name for name in given if name != "run_dir"]
    if others:
        raise CallboardError(
            "runs of several seeds are resumed with the settings they were started with; leave out "
            f"{option_name(others[0])}, or continue one of them: callboard train --resume "
            f"--run-dir {directory.path}/seed-1"
        )
    before = directory.read_seeds()
    recipe = read_recipe(str(directory.settings("")))
    return directory, Cell("", recipe, list(dict.fromkeys([*before, *(seeds or [])])), launch_options)
