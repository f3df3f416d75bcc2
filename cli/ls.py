"""`callboard ls`: the runs in a folder, with state, steps, score and age."""

import dataclasses
import json
import os
from collections.abc import Sequence

from ..errors import CallboardError, printable, rounded
from ..launch.experiments.run_overview import RunOverview, overview_of_run
from ..launch.run_directory.found_runs import runs_in
from ..launch.run_directory.remote_storage import is_url
from .command_parser import CommandParser

_COLUMNS = ("run", "state", "steps", "score", "age", "agent", "environment", "seed")
_RIGHT = ("steps", "score", "age", "seed")


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard ls",
        description="Lists the runs in a folder, at any depth: their state (running, done, stopped, no results), "
        "environment or learner steps, the mean return of the last evaluation, and the time since their last metrics.",
    )
    parser.add_argument("folder", nargs="?", default="runs", metavar="DIR", help="the folder, a path or a URL (runs)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    if not is_url(known.folder) and known.folder != "runs" and not os.path.isdir(known.folder):
        raise CallboardError(f"there is no folder {known.folder or repr('')}")
    found = [overview_of_run(run) for run in runs_in(known.folder)]
    if known.json:
        print(json.dumps([dataclasses.asdict(one) for one in found]))
    elif not found:
        print(printable(f"no runs in {known.folder}"))
    else:
        print("\n".join(_table([_COLUMNS, *([*map(printable, _row(one))] for one in found)])))
    return 0


def _row(one: RunOverview) -> tuple[str, ...]:
    steps, limit, kind = one.steps, one.max_steps, ""
    if not steps and one.learner_steps:  # It learns from recorded episodes.
        steps, limit, kind = one.learner_steps, one.max_learner_steps, " learner"
    of = "" if limit is None else f" of {limit:,}"
    named = [f"{policy} {rounded(score)}".strip() for policy, score in one.scores.items()]
    if one.state == "damaged":
        return one.run, one.state, "", "", "", "", "", ""
    return (
        one.run,
        one.state,
        f"{steps:,}{of}{kind}",
        ", ".join(named) or "-",
        _age(one.age),
        one.agent,
        one.env,
        str(one.seed),
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.rjust if name in _RIGHT else str.ljust for name in _COLUMNS]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _age(seconds: float) -> str:
    """Returns a time in its largest unit, such as `3 h`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
