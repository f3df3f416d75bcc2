"""The command `callboard-bench`."""

import argparse
import io
import pathlib
import sys
from collections.abc import Sequence

from rich.console import Console

from ..errors import CallboardError, long_paths_refused, unknown
from ..launch.launchers.node_processes.forkserver import start_forkserver, stop_forkserver
from .harness import BENCHMARKS, run_benchmark
from .report import compare, comparison_table, results_table, update_page
from .results import RESULTS, Result, load
from .side import SideFailed
from .suites.command import add_parser as add_suites_parser

_DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
_PAGE = "benchmarks.md"
_MOST_REPEATS = 20
_WIDTH = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, which is 2 if the user has to fix something first."""
    known = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # Without a terminal the width is unknown, and tables must not be wrapped.
    screen = Console(highlight=False, soft_wrap=True, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        with long_paths_refused():
            return known.command(known, screen) or 0
    except CallboardError as error:
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(f"callboard-bench: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "callboard-bench", description="Measures our part of a piece of work beside the same work done bare, in turn."
    )
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="measure, and write the results")
    run.set_defaults(command=_run)
    run.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; all of them if none is named")
    run.add_argument("--repeats", type=int, default=5, help="measurements of each side (default 5)")
    run.add_argument("--only", default="", metavar="TEXT", help="only cases with this text in their names")
    run.add_argument(
        "--quick", action="store_true", help="small cases, to see that they work; the figures mean nothing"
    )
    run.add_argument(
        "--output",
        type=pathlib.Path,
        help=f"directory of the results; default {RESULTS}, with --only or --quick they are not kept",
    )

    listing = commands.add_parser("list", help="list the benchmarks")
    listing.set_defaults(command=_list)

    comparison = commands.add_parser("compare", help="set two results side by side")
    comparison.set_defaults(command=_compare)
    comparison.add_argument("before", type=pathlib.Path, help="a file of results, or a directory of them")
    comparison.add_argument("after", type=pathlib.Path, help="the other one")

    add_suites_parser(commands, _DOCS)

    plot = commands.add_parser("plot", help="write the pictures and the table of docs/benchmarks.md")
    plot.set_defaults(command=_plot)
    plot.add_argument("--results", type=pathlib.Path, default=RESULTS, help="directory of the results")
    plot.add_argument("--docs", type=pathlib.Path, default=_DOCS, help=f"directory of {_PAGE}")
    return parser


def _run(known: argparse.Namespace, screen: Console) -> None:
    for name in known.names:
        if name not in BENCHMARKS:
            raise unknown("benchmark", name, BENCHMARKS)
    if not 1 <= known.repeats <= _MOST_REPEATS:
        raise CallboardError(f"--repeats must be from 1 to {_MOST_REPEATS}, not {known.repeats}")
    if known.output is None and not (known.only or known.quick):
        known.output = RESULTS
    start_forkserver()
    results = []
    try:
        for name in known.names or BENCHMARKS:
            result = run_benchmark(name, known.repeats, known.quick, known.only, notify=screen.print)
            if result.cases:
                results.append(result)
                if known.output is not None:
                    result.save(known.output)
    except SideFailed as error:
        raise CallboardError(f"a measurement has failed: {error}") from None
    finally:
        stop_forkserver()
    if known.only and not results:
        raise CallboardError(f"nothing was measured: no case that is there has {known.only!r} in its name")
    screen.print(results_table(results))


def _list(known: argparse.Namespace, screen: Console) -> None:
    for name, description in BENCHMARKS.items():
        screen.print(f"{name:10} {description}")


def _compare(known: argparse.Namespace, screen: Console) -> None:
    comparisons = compare(_load(known.before), _load(known.after))
    if not comparisons:
        raise CallboardError(f"{known.before} and {known.after} have no case in common")
    screen.print(comparison_table(comparisons))


def _plot(known: argparse.Namespace, screen: Console) -> None:
    from .plots import write_plots

    found = {result.benchmark: result for result in _load(known.results)}
    results = [found[name] for name in BENCHMARKS if name in found]
    pictures = write_plots(results, known.docs)
    update_page(known.docs / _PAGE, results, pictures)
    for path in (*pictures, known.docs / _PAGE):
        screen.print(str(path))


def _load(path: pathlib.Path) -> list[Result]:
    if not path.exists():
        raise CallboardError(f"there is no {path}")
    try:
        results = load(path)
    except (ValueError, TypeError, KeyError) as error:
        raise CallboardError(f"{path} cannot be read as results: {error}") from error
    if not results:
        raise CallboardError(f"{path} holds no results: measure with `callboard-bench run`")
    return results


def run_command() -> None:
    """The entry point of the command."""
    sys.exit(main())


if __name__ == "__main__":
    run_command()
