"""Tables of results: of one run, of two runs side by side, and for the documentation."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from .results import CaseResult, Result, spread

_MARKS = "<!-- results: written by callboard-bench plot -->", "<!-- end of results -->"
_COLUMNS = ("benchmark", "case", "ours", "limit", "unit", "ratio", "quartiles", "least to most", "target", "")


class Comparison(NamedTuple):
    """One case in two results."""

    benchmark: str
    case: str
    before: CaseResult
    after: CaseResult

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the quartile ranges of the two ratios do not overlap; otherwise empty."""
        before, after = spread(self.before.ratios), spread(self.after.ratios)
        if before.lower <= after.upper and after.lower <= before.upper:
            return ""
        return "better" if (after.median > before.median) == self.after.higher_is_better else "worse"


def compare(before: Sequence[Result], after: Sequence[Result]) -> list[Comparison]:
    """Return the cases that are in both, in the order of `after`."""
    known = {(result.benchmark, case.name): case for result in before for case in result.cases}
    return [
        Comparison(result.benchmark, case.name, known[result.benchmark, case.name], case)
        for result in after
        for case in result.cases
        if (result.benchmark, case.name) in known
    ]


def results_table(results: Sequence[Result]) -> Table:
    """Return a table of results for the screen."""
    table = Table(*_COLUMNS, box=None)
    for row in _rows(results):
        table.add_row(*row)
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table of two results side by side for the screen."""
    table = Table("benchmark", "case", "ours", "then", "unit", "ratio", "then", "quartiles", "then", "", box=None)
    for comparison in comparisons:
        sides = (comparison.before, comparison.after)
        ratios = [spread(side.ratios) for side in sides]
        table.add_row(
            comparison.benchmark,
            comparison.case,
            *(figure(spread(side.ours).median) for side in sides),
            comparison.after.unit,
            *(f"{ratio.median:.3f}" for ratio in ratios),
            *(f"{ratio.lower:.3f}–{ratio.upper:.3f}" for ratio in ratios),
            comparison.verdict,
        )
    return table


def update_page(page: pathlib.Path, results: Sequence[Result], pictures: Sequence[pathlib.Path]) -> None:
    """Write the table of results, and links to the plots next to the page, between the two marks of a Markdown page."""
    shown = "\n\n".join(f"![{picture.stem}]({picture.name})" for picture in pictures)
    replace_between(page, _MARKS, f"{markdown(results)}\n\n{shown}")


def replace_between(page: pathlib.Path, marks: tuple[str, str], text: str) -> None:
    """Replace what is between two marks of a page by a text."""
    begin, end = marks
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def markdown(results: Sequence[Result]) -> str:
    """Return the results, and the machines that they were measured on, as Markdown."""
    lines = [
        f"| {' | '.join(_COLUMNS[:-1])} | reached |",
        "|---|---|--:|--:|---|--:|--:|--:|--:|---|",
        *(f"| {' | '.join(row)} |" for row in _rows(results)),
        "",
    ]
    for result in results:
        machine = result.machine
        lines.append(
            f"- {result.benchmark}: {_repeats(result.cases)}, {result.begun[:10]}, "
            f"commit {result.commit or 'unknown'}; {machine['processor']}, {machine['cores']} cores, "
            f"load of the machine when it began {machine['load']}; TensorFlow {result.versions['tensorflow']}"
            + (". Made with --quick: the figures mean nothing" if result.quick else "")
        )
    return "\n".join(lines)


def figure(value: float) -> str:
    """Format a figure with at least three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _repeats(cases: Sequence[CaseResult]) -> str:
    """Describe the number of repeats, which differs between cases if a peer failed in one of them."""
    counts = [len(case.ours) for case in cases] or [0]
    least, most = min(counts), max(counts)
    return ("" if least == most else f"{least} to ") + f"{most} repeat{'' if most == 1 else 's'}"


def _rows(results: Sequence[Result]) -> list[list[str]]:
    return [[result.benchmark, *_row(case)] for result in results for case in result.cases]


def _row(case: CaseResult) -> list[str]:
    ratio = spread(case.ratios)
    added = f"; {spread(case.added_microseconds).median:+,.0f} µs a timestep" if case.timestep else ""
    sign = "≥" if case.higher_is_better else "≤"
    return [
        f"{case.name} ({case.note})" if case.note else case.name,
        figure(spread(case.ours).median),
        figure(spread(case.limit).median),
        case.unit + added,
        f"{ratio.median:.3f}",
        f"{ratio.lower:.3f}–{ratio.upper:.3f}",
        f"{ratio.least:.3f}–{ratio.largest:.3f}",
        "" if case.target is None else f"{sign} {case.target:.2f}",
        {None: "", True: "yes", False: "no"}[case.reached],
    ]
