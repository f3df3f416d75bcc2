"""`callboard-bench suites`: runs the suites, lists their cells, and writes the page of their results."""

import argparse
import dataclasses
import pathlib
from collections.abc import Sequence

from rich.console import Console

from ...errors import CallboardError
from .cell_results import SUITES
from .page import write_report
from .runner import Stopped, be_modest, missing_seeds, run_suites
from .suite import SuiteCell, read_suite, suite_cells, suite_names


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", docs: pathlib.Path) -> None:
    """Adds the subcommand.

    Args:
      commands: the subcommands of `callboard-bench`.
      docs: directory of the pages.
    """
    parser = commands.add_parser("suites", help="run agents on published suites in the background; report the results")
    actions = parser.add_subparsers(required=True)

    run = actions.add_parser("run", help="make what is missing, the cheapest cell first; may be stopped at any moment")
    run.set_defaults(command=_run)
    _add_selection(run)
    run.add_argument("--cores", type=int, default=1, help="cores that it may use (default 1), at the lowest priority")
    run.add_argument("--seeds", type=int, metavar="N", help="only the first N seeds of each cell")
    run.add_argument("--run-dir", type=pathlib.Path, default=pathlib.Path("runs/suites"), help="where the runs are")

    listing = actions.add_parser("list", help="list the cells, and how many of their runs are missing")
    listing.set_defaults(command=_list)
    _add_selection(listing)
    listing.add_argument("--run-dir", type=pathlib.Path, default=pathlib.Path("runs/suites"), help="where the runs are")

    report = actions.add_parser("report", help="write the tables and pictures of docs/how_well.md")
    report.set_defaults(command=_report)
    report.add_argument("--results", type=pathlib.Path, default=SUITES, help="directory of the results")
    report.add_argument("--docs", type=pathlib.Path, default=docs, help="directory of the page")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="SUITE", help="suites; all of them if none is named")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells with this text in their names")
    parser.add_argument("--results", type=pathlib.Path, default=SUITES, help="directory of the results")


def _run(known: argparse.Namespace, screen: Console) -> int:
    if known.cores < 1:
        raise CallboardError(f"--cores must be at least 1, not {known.cores}")
    if known.seeds is not None and known.seeds < 1:
        raise CallboardError(f"--seeds must be at least 1, not {known.seeds}")
    cells = [dataclasses.replace(cell, seeds=cell.seeds[: known.seeds]) for cell in _cells(known.names, known.only)]
    be_modest(known.cores)
    try:
        failed = run_suites(cells, known.run_dir, known.results, screen.print)
    except Stopped as stopped:
        screen.print("stopped; the same command continues")
        return stopped.exit_code
    if failed:
        raise CallboardError(f"{len(failed)} runs have failed: {', '.join(failed)}")
    return 0


def _list(known: argparse.Namespace, screen: Console) -> int:
    for cell in _cells(known.names, known.only):
        missing = len(missing_seeds(cell, known.results, known.run_dir))
        screen.print(
            f"{cell.full_name:60} {missing} of {len(cell.seeds)} runs missing, {missing * cell.seconds / 3600:.1f} h"
        )
    return 0


def _report(known: argparse.Namespace, screen: Console) -> int:
    for path in write_report({name: read_suite(name) for name in suite_names()}, known.results, known.docs):
        screen.print(str(path))
    return 0


def _cells(names: Sequence[str], only: str) -> list[SuiteCell]:
    found = [
        cell
        for name in names or suite_names()
        for cell in suite_cells(name, read_suite(name))
        if only in cell.full_name
    ]
    if not found:
        raise CallboardError(f"no cell has {only!r} in its name; see callboard-bench suites list")
    return found
