"""`callboard compare`: curves, final scores and steps to a goal of several runs."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from rich.console import Console

from ..errors import printable
from ..settings.nested_settings import declared_fields
from ..studies.comparison.compared_runs import compare_runs
from ..studies.comparison.comparison import Comparison, ComparisonSettings
from ..studies.comparison.comparison_tables import plain_values, tables
from .command_parser import CommandParser, field_values

_WIDE = 10_000
"""Width of a line where there is no terminal: whatever its table needs."""


@dataclasses.dataclass(frozen=True)
class CompareOptions(ComparisonSettings):
    """The options of the command.

    Attributes:
      plot: file for the curves (.png, .svg or .pdf).
      plot_scores: file for a plot of the final scores.
      plot_summary: file for one picture of the normalized scores in all environments of `score_ranges`: interquartile
        means, curves and performance profiles.
      group_by: settings that make groups, such as `optimizer.learning_rate`; all others may differ within a group.
      labels: names of groups by directory, such as `{runs/a: small network}`; runs with one label are one group.
      include_running: whether runs that have not ended are compared as far as they are.
      json: print JSON.
    """

    plot: pathlib.Path | None = None
    plot_scores: pathlib.Path | None = None
    plot_summary: pathlib.Path | None = None
    group_by: list[str] = dataclasses.field(default_factory=list)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    include_running: bool = False
    json: bool = False


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard compare",
        description="Compares runs.  Runs that differ only in their seed and length are one group.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or a folder of runs; a path or a URL")
    fields = declared_fields(CompareOptions)
    parser.add_fields(fields)
    known = parser.parse_args(arguments)
    options = CompareOptions(**field_values(known, fields))
    options.check()
    from ..studies.comparison.curve_plots import check_plot, plot_curves, plot_scores, plot_summary

    plots = ((options.plot, plot_curves), (options.plot_scores, plot_scores), (options.plot_summary, plot_summary))
    for path, _ in plots:
        if path is not None:
            check_plot(path)
    comparison = compare_runs(known.runs, options, options.include_running, options.group_by, options.labels)
    if options.json:
        print(json.dumps(plain_values(comparison)))
    else:
        print_comparison(comparison)
    for path, plot in plots:
        if path is not None:
            plot(comparison, path)
            if not options.json:
                print(printable(f"plot: {path}"))
    return 0


def print_comparison(comparison: Comparison) -> None:
    """Prints the tables of a comparison, and a line about every run that was left out."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    for table in tables(comparison):
        console.print(table.rich())
        console.print()
    for line in comparison.left_out:
        console.print(printable(line), markup=False)
