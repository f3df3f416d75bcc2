"""The tables of a comparison, for the terminal, in Markdown and as plain values."""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ...errors import printable, rounded
from ...launch.plain_names import in_markdown
from .comparison import Comparison, ComparisonSettings, GroupScore, RunScore, VariantImprovement, VariantScore
from .score_statistics import Interval

_NONE = "-"
_NUMBERS = ("seed", "runs", "steps", "seconds", "score", "mean", "area", "IQM", "interval")


class TextTable(NamedTuple):
    """A table of texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def rich(self) -> Table:
        table = Table(box=None, pad_edge=False, title=Text(printable(self.title)), title_justify="left")
        for column in self.columns:
            table.add_column(Text(printable(column)), justify="right" if _is_numeric(column) else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(printable(text)) for text in row))
        return table

    def markdown(self) -> str:
        alignments = ["--:" if _is_numeric(column) else "---" for column in self.columns]
        rows = [self.columns, alignments, *self.rows]
        return "\n".join(f"| {' | '.join(map(in_markdown, row))} |" for row in rows)


def tables(comparison: Comparison) -> list[TextTable]:
    """Returns the tables of groups, of runs and, if there are normalized scores, of variants."""
    settings = comparison.settings
    percent = f"{100 * settings.confidence:g}% interval"
    found = [
        TextTable(
            f"final scores over runs: {settings.metric}",
            ["group", "runs", "mean", "area", "IQM", percent, "reached", "median steps", "median seconds"],
            [_group_row(score) for score in comparison.groups],
        ),
        TextTable(
            f"runs: {settings.metric}",
            ["group", "seed", "steps to goal", "seconds to goal", "score", "all steps", "all seconds", "run"],
            [_run_row(score) for score in comparison.runs],
        ),
    ]
    if comparison.variants:
        rows = [_variant_row(score) for score in comparison.variants]
        found.append(TextTable("normalized scores", ["agent", "environments", "runs", "IQM", percent], rows))
    if comparison.improvements:
        columns = ["agent", "over", "environments", "mean", percent]
        rows = [_improvement_row(improvement) for improvement in comparison.improvements]
        found.append(TextTable("probability of improvement", columns, rows))
    return found


def plain_values(comparison: Comparison) -> dict[str, Any]:
    """Returns all figures as values for JSON."""
    return {
        "settings": {field.name: getattr(comparison.settings, field.name) for field in fields(ComparisonSettings)},
        "groups": [
            {
                "name": score.group.name,
                "variant": score.group.variant,
                "env": score.group.env,
                "runs": [run.name for run in score.group.runs],
                "mean": score.mean,
                "std": score.std,
                "area": score.area,
                "iqm": score.iqm,
                "interval": score.interval,
                "reached": len(score.reached),
                "median_steps": score.median_steps,
                "median_seconds": score.median_seconds,
            }
            for score in comparison.groups
        ],
        "runs": [
            {
                "run": score.run.name,
                "group": score.group.name,
                "seed": score.run.seed,
                "goal": score.goal,
                "steps_to_goal": score.reached and score.reached.steps,
                "seconds_to_goal": score.reached and score.reached.seconds,
                "score": score.run.score,
                "score_std": score.run.deviation,
                "steps": score.run.total_steps,
                "seconds": score.run.total_seconds,
            }
            for score in comparison.runs
        ],
        "normalized": [asdict(score) for score in comparison.variants],
        "improvements": [asdict(improvement) for improvement in comparison.improvements],
        "left_out": list(comparison.left_out),
    }


def _is_numeric(column: str) -> bool:
    return any(word in _NUMBERS for word in column.split())


def _group_row(score: GroupScore) -> list[str]:
    count = len(score.group.runs)
    return [
        score.group.name,
        str(count),
        f"{_number(score.mean)} ± {_number(score.std)}",
        _number(score.area),
        _number(score.iqm),
        _interval(score.interval),
        f"{len(score.reached)} of {count}" if score.has_goal else _NONE,
        _steps(score.median_steps),
        _steps(score.median_seconds),
    ]


def _run_row(score: RunScore) -> list[str]:
    run = score.run
    return [
        score.group.name,
        str(run.seed),
        _steps(score.reached and score.reached.steps),
        _steps(score.reached and score.reached.seconds),
        _number(run.score) + (f" ± {_number(run.deviation)}" if run.deviation is not None else ""),
        _steps(run.total_steps),
        _steps(run.total_seconds),
        _shown_path(run.name),
    ]


def _improvement_row(improvement: VariantImprovement) -> list[str]:
    return [
        improvement.variant,
        improvement.other,
        ", ".join(improvement.envs),
        f"{improvement.probability:.3f}",
        _share_interval(improvement.interval),
    ]


def _variant_row(score: VariantScore) -> list[str]:
    return [
        score.variant,
        ", ".join(score.envs),
        str(score.runs),
        f"{score.iqm:.3f}",
        _share_interval(score.interval),
    ]


def _share_interval(interval: Interval | None) -> str:
    return _NONE if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


def _shown_path(name: str) -> str:
    if "://" in name:
        return name
    relative = os.path.relpath(name)
    return name if relative.startswith(os.pardir) else relative


def _interval(interval: Interval | None) -> str:
    return _NONE if interval is None else f"{_number(interval.low)} to {_number(interval.high)}"


def _number(value: float) -> str:
    return rounded(value) if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def _steps(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"
