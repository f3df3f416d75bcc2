"""The page "How well does it learn": tables and pictures from the files of results alone."""

import dataclasses
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ...launch.experiments.stop_conditions import reaches
from ...launch.plain_names import in_plot
from ...studies.comparison.comparison import ComparisonSettings, Group, compare
from ...studies.comparison.curve_plots import make_panels, plot_curves, write_plot
from ...studies.comparison.run_results import RETURN
from ..report import figure, replace_between
from .cell_results import TRAINING_RETURN, CellResult, as_runs, is_current, load_result, result_path
from .suite import Reference, Suite, SuiteCell, suite_cells

PAGE = "how_well.md"
PUBLISHED = "published.png"
"""The picture of all cells that have results and a published goal."""
MARKS = "<!-- suites: written by callboard-bench suites report -->", "<!-- end of suites -->"
Verdict = Literal["reached", "short", "missing", "no goal"]
_PEER_NAME = "Stable-Baselines3"
_COLUMNS = 4
_PANEL_HEIGHT = 3.6


class Row(NamedTuple):
    """A cell beside what it is to reach, and what others have published.

    Attributes:
      cell: our side.
      result: its results; None if there are none.
      peer: results of the peer; None if it is not run, or has none yet.
      has_peer: whether the peer is run beside it.
      references: what was published.
    """

    cell: SuiteCell
    result: CellResult | None
    peer: CellResult | None
    has_peer: bool
    references: Sequence[Reference]

    @property
    def goals(self) -> list[tuple[float, bool]]:
        """The scores to be reached, and whether each is one of training episodes; empty while they are not known."""
        if self.has_peer:
            if self.peer is None or not self.peer.seeds:
                return []
            return [(float(np.mean(self.peer.scores) - np.std(self.peer.scores)), False)]
        return [
            (reference.goal, reference.measured == "training") for reference in self.references if reference.is_goal
        ]

    @property
    def is_complete(self) -> bool:
        return self.result is not None and set(self.result.seeds) >= set(self.cell.seeds)

    @property
    def verdict(self) -> Verdict:
        if self.result is None or not self.result.seeds:
            return "missing"
        if not self.goals:
            return "missing" if self.has_peer else "no goal"
        reached = []
        for goal, of_training in self.goals:
            values = self.result.training if of_training else self.result.scores
            reached.append(bool(values) and reaches(float(np.mean(values)), goal))
        return "reached" if all(reached) else "short"


def rows_of(name: str, suite: Suite, results: pathlib.Path) -> list[Row]:
    """Returns the rows of a suite.

    Raises:
      CallboardError: a file of results is damaged.
    """
    cells = suite_cells(name, suite)
    peers = {cell.name: cell for cell in cells if not cell.is_ours}
    rows = []
    for cell in cells:
        if cell.is_ours:
            peer = peers.get(cell.name)
            rows.append(
                Row(
                    cell,
                    load_result(result_path(results, cell)),
                    None if peer is None else load_result(result_path(results, peer)),
                    peer is not None,
                    [reference for reference in suite.references if reference.is_of(cell)],
                )
            )
    return rows


def write_report(suites: Mapping[str, Suite], results: pathlib.Path, docs: pathlib.Path) -> list[pathlib.Path]:
    """Writes the page's tables and pictures; returns the paths of what was written.

    Args:
      suites: the suites by name.
      results: where the results are.
      docs: where the page and its pictures are.
    """
    ordered = sorted(suites.items(), key=lambda item: (item[1].order, item[0]))
    rows = {name: rows_of(name, suite, results) for name, suite in ordered}
    parts = [_summary({suites[name].title: found for name, found in rows.items()})]
    written = []
    for name, suite in ordered:
        parts += [f"## {suite.title}", textwrap.fill(suite.description, 120), _table(rows[name])]
        picture = docs / f"suite-{name}.png"
        if _plot(rows[name], picture):
            written.append(picture)
            parts.append(f"![returns of training episodes, {suite.title}]({picture.name})")
        if sources := _sources(suite):
            parts.append(sources)
    pictured = [row for name, found in rows.items() if suites[name].in_picture for row in found]
    if _plot_published(pictured, docs / PUBLISHED):
        written.append(docs / PUBLISHED)
        parts.insert(1, f"![returns of our runs beside published scores]({PUBLISHED})")
    page = docs / PAGE
    replace_between(page, MARKS, "\n\n".join(parts))
    return [page, *written]


def _summary(rows: Mapping[str, Sequence[Row]]) -> str:
    lines = [
        "| suite | cells | made | all seeds | reached | short | missing | hours of a core |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for title, found in rows.items():
        verdicts = [row.verdict for row in found]
        sides = [result for row in found for result in (row.result, row.peer) if result is not None]
        made = sum(row.result is not None and bool(row.result.seeds) for row in found)
        counts = [len(found), made, sum(row.is_complete for row in found)]
        counts += [verdicts.count(verdict) for verdict in ("reached", "short", "missing")]
        hours = sum(side.cpu_seconds for side in sides) / 3600
        lines.append(f"| {title} | {' | '.join(map(str, counts))} | {hours:.1f} |")
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| agent | environment | steps | seeds | evaluation | training | reference | goal | |",
        "|---|---|--:|--:|--:|--:|---|--:|---|",
    ]
    for row in rows:
        result = row.result
        seeds = f"{0 if result is None else len(result.seeds)} of {len(row.cell.seeds)}"
        shown = _shown(result)
        scores = "missing" if shown is None else _mean(shown.scores)
        training = "" if shown is None else _mean(shown.training)
        goals = "; ".join(_number(goal) + (" in training" if training else "") for goal, training in row.goals)
        lines.append(
            f"| `{row.cell.shown_agent}` | {row.cell.env} | {row.cell.steps:,} | {seeds} | {scores} | {training} "
            f"| {_reference(row)} | {goals} | {_remark(row)} |"
        )
    return "\n".join(lines)


def _shown(result: CellResult | None) -> CellResult | None:
    """Returns the results of finished runs, or of those that were stopped if none is finished; None without any."""
    if result is None or result.seeds:
        return result
    return dataclasses.replace(result, seeds=result.unfinished) if result.unfinished else None


def _remark(row: Row) -> str:
    remarks: list[str] = [] if row.verdict in ("no goal", "missing") else [row.verdict]
    if row.result is not None:
        if row.result.unfinished and not row.result.seeds:
            steps = max(values.steps for values in row.result.unfinished.values())
            remarks.append(f"not finished: after {steps:,} steps")
        if row.result.failed:
            remarks.append(f"seeds that failed: {', '.join(map(str, row.result.failed))}")
        if (row.result.seeds or row.result.unfinished) and not is_current(row.result, row.cell):
            remarks.append(f"made with an earlier algorithm ({row.result.version})")
    return "; ".join(remarks)


def _reference(row: Row) -> str:
    found = []
    if row.has_peer:
        known = row.peer is not None and bool(row.peer.seeds)
        found.append(f"{_PEER_NAME}: {_mean(row.peer.scores) if known and row.peer is not None else 'missing'}")
    for number, reference in enumerate(row.references):
        spread = "" if reference.spread is None else f" ± {_number(reference.spread)}"
        training = " in training" if reference.measured == "training" else ""
        other = "" if reference.steps == row.cell.steps else f" after {reference.steps:,}"
        found.append(
            f"{'also ' if row.has_peer and not number else ''}{_number(reference.mean)}{spread}{training}{other}"
        )
    return "; ".join(found)


def _sources(suite: Suite) -> str:
    sources: dict[str, None] = {}
    for reference in suite.references:
        runs = "" if reference.runs is None else f", {reference.runs} runs"
        protocol = f", {reference.protocol}" if reference.protocol else ""
        sources[f"- `{reference.name or reference.agent}`: {reference.source}{runs}{protocol}"] = None
    return "\n".join(["Sources of what was published:", "", *sources]) if sources else ""


def _plot(rows: Sequence[Row], path: pathlib.Path) -> bool:
    """Writes the curves of training episodes; returns whether there are any."""
    groups = []
    for row in rows:
        for result, name in ((row.result, row.cell.shown_agent), (row.peer, "")):
            if result is not None and (runs := as_runs(result, TRAINING_RETURN)):
                groups.append(Group(name or f"{result.agent}, {_PEER_NAME}", row.cell.env, runs))
    if groups:
        plot_curves(compare(groups, ComparisonSettings(metric=TRAINING_RETURN, spread="range", resamples=2)), path)
    return bool(groups)


def _plot_published(rows: Sequence[Row], path: pathlib.Path) -> bool:
    """Writes a panel for each cell that has results and a published goal; returns whether there is one.

    It has the curve of each run, of what the score was measured by, and the published mean with its deviation.
    """
    shown = [
        (row.result, row, reference)
        for row in rows
        for reference in row.references
        if row.result is not None and row.result.seeds and reference.is_goal and not row.has_peer
    ]
    if not shown:
        return False
    from matplotlib.ticker import EngFormatter

    picture, panels = make_panels(len(shown), _PANEL_HEIGHT, _COLUMNS)
    for (result, row, reference), axes in zip(shown, panels, strict=True):
        for run in as_runs(result, TRAINING_RETURN if reference.measured == "training" else RETURN):
            axes.plot(run.steps, run.values, color="C0")
        axes.axhline(reference.mean, color="black", linestyle="--", linewidth=1)
        spread = reference.spread or 0.0
        axes.axhspan(reference.mean - spread, reference.mean + spread, color="black", alpha=0.1, linewidth=0)
        axes.set_title(f"{row.cell.shown_agent}, {in_plot(row.cell.env)}")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("environment steps")
        axes.set_ylabel(f"return, {reference.measured}")
    write_plot(picture, path)
    return True


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean = _number(float(np.mean(values)))
    return mean if len(values) == 1 else f"{mean} ± {_number(float(np.std(values)))}"


def _number(value: float) -> str:
    exact = round(value, 12)  # The spread of equal numbers may be 1e-16.
    return f"{exact:.1f}" if 10 <= abs(exact) < 1000 else figure(exact)
