"""The report of a study: a page in Markdown with tables and plots."""

import os
import pathlib
import platform
from collections.abc import Sequence
from urllib.parse import quote

from ... import __version__
from ...errors import printable
from ...files.atomic_files import write_file
from ...launch.plain_names import as_code, in_markdown
from .comparison import Comparison, Group, compare
from .comparison_tables import tables
from .curve_plots import plot_curves, plot_scores
from .run_results import read_results
from .run_series import SeriesDirectory
from .study_definition import Study, StudyCell

_CURVES, _SCORES, _PAGE = "curves.png", "scores.png", "report.md"


def compare_study(study: Study, cells: Sequence[StudyCell], directory: SeriesDirectory) -> Comparison:
    """Compares the runs of a study as far as there are any; each cell is a group."""
    groups: list[Group] = []
    left_out: list[str] = []
    for cell in cells:
        begun = [
            str(directory.run(cell.run_name(seed))) for seed in cell.seeds if directory.has_begun(cell.run_name(seed))
        ]
        results = read_results(begun, study.report.metric)
        left_out += results.left_out
        if results.runs:
            groups.append(Group(cell.variant, cell.env, sorted(results.runs, key=lambda run: run.seed)))
    return compare(groups, study.report, left_out)


def write_report(
    study: Study,
    cells: Sequence[StudyCell],
    comparison: Comparison,
    directory: SeriesDirectory,
    title: str,
    command: str,
) -> pathlib.Path:
    """Writes the report with its plots; returns its path.

    Args:
      study: the study.
      cells: its cells.
      comparison: the comparison of its runs.
      directory: its directory.
      title: title of the page.
      command: the command that repeats it.
    """
    ends = directory.read_progress()
    finished = sum(end is not None and end.is_finished for end in ends.values())
    parts = [f"# {in_markdown(title)}"]
    if study.description:
        parts.append(study.description.strip())
    parts.append(f"```\n{printable(command)}\n```")
    parts.append(
        f"{finished} of {len(ends)} runs are finished. {os.cpu_count()} CPUs ({platform.machine()}), Callboard "
        f"{__version__}, Python {platform.python_version()}. Scores are the last value of "
        f"{as_code(study.report.metric)}; intervals are percentile bootstraps of the interquartile mean."
    )
    for table in tables(comparison):
        parts += [f"## {in_markdown(table.title[:1].upper() + table.title[1:])}", table.markdown()]
    if comparison.groups:
        plot_curves(comparison, directory.path / _CURVES)
        plot_scores(comparison, directory.path / _SCORES)
        parts += ["## Plots", f"![curves of all runs]({_CURVES})", f"![final scores]({_SCORES})"]
    failed = [
        f"- {as_code(name)}: exit code {end.exit_code}" for name, end in ends.items() if end and not end.is_finished
    ]
    if failed:
        parts += ["## Failed runs", "\n".join(failed)]
    if comparison.left_out:
        parts += ["## Left out", "\n".join(f"- {in_markdown(line)}" for line in comparison.left_out)]
    links = [
        f"- {in_markdown(f'{cell.variant} on {cell.env}')}: [settings]({quote(cell.name)}/settings.yaml)"
        for cell in cells
    ]
    parts += ["## Settings", "\n".join(links)]
    path = directory.path / _PAGE
    write_file(path, "\n\n".join(parts) + "\n")
    return path
