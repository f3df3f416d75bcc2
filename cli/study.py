"""`callboard study`: runs a matrix of agents, environments, variants and seeds, and writes a report."""

import functools
import pathlib
import shlex
from collections.abc import Sequence

from ..errors import CallboardError
from ..messages.install_commands import install_command
from ..studies.comparison.run_series import SeriesDirectory, SeriesOutcome, run_series
from ..studies.comparison.study_definition import Study, StudyCell, cells_of, read_study
from .command_parser import CommandParser
from .compare import print_comparison
from .experiment_options import check_option_names, local_directory
from .seed_series import parse_seeds, print_now


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard study",
        usage="callboard study FILE|NAME [options]",
        description="Runs a study, or what is missing of it, and writes a report with tables and plots.",
        epilog="All settings of `callboard train` are options too, for all runs of the study.",
    )
    parser.add_argument("study", metavar="FILE|NAME", help="a YAML file, or a name in `callboard list studies`")
    parser.add_argument(
        "--run-dir", type=functools.partial(local_directory, "study"), help="directory of the study (runs/study-NAME)"
    )
    parser.add_argument("--seeds", help="seeds of all runs in place of those of the study, such as 1,2,3")
    parser.add_argument("--only", metavar="TEXT", default="", help="only combinations whose name contains this text")
    parser.add_argument("--list", action="store_true", help="list the runs, and start nothing")
    parser.add_argument("--report", action="store_true", help="write the report of the runs so far, and start nothing")
    known, options = parser.parse_known_args(arguments)
    check_option_names(options, parser.options)
    study = read_study(known.study)
    if known.seeds is not None:
        study = study.with_seeds(parse_seeds(known.seeds))
    cells = cells_of(study, options, known.only)
    runnable = [cell for cell in cells if cell.missing is None]
    missing = _missing(cells)
    directory = SeriesDirectory(known.run_dir or pathlib.Path("runs") / f"study-{pathlib.Path(known.study).stem}")
    directory.check(cells)
    if known.list:
        for cell in cells:
            for seed in cell.seeds:
                print_now(cell.run_name(seed))
        if missing:
            print_now(missing)
        return 0
    from ..studies.comparison.curve_plots import check_plot

    check_plot(None)
    if known.report:
        if not directory.exists:
            raise CallboardError(f"there are no runs of a study in {directory.path}; start them without --report")
        outcome = SeriesOutcome(directory.read_progress(), None)
    else:
        if not runnable:
            raise CallboardError(missing)
        if missing:
            print_now(missing)
        outcome = run_series(directory, runnable, print_now)
    words = [word for word in arguments if word != "--report"]
    cells = [cell for cell in cells if cell in runnable or directory.settings(cell.name).exists()]
    _report(study, cells, directory, pathlib.Path(known.study).stem, shlex.join(["callboard", "study", *words]))
    print_now(outcome.summary())
    if outcome.stopped_by is not None:
        print_now("stopped; the same command continues")
    return outcome.exit_code


def _missing(cells: Sequence[StudyCell]) -> str:
    """Returns a line that names the environments that cannot be made, and what to install; empty if all can be."""
    lacking = [(cell.env, cell.missing) for cell in cells if cell.missing is not None]
    if not lacking:
        return ""
    environments = ", ".join(dict.fromkeys(f"{env} ({error.package})" for env, error in lacking))
    install = install_command(*dict.fromkeys(error.requirement for _, error in lacking))
    return f"missing packages leave out {environments}: {install}"


def _report(study: Study, cells: Sequence[StudyCell], directory: SeriesDirectory, name: str, command: str) -> None:
    from ..studies.comparison.study_report import compare_study, write_report

    comparison = compare_study(study, cells, directory)
    print_comparison(comparison)
    print_now(f"report: {write_report(study, cells, comparison, directory, name, command)}")
