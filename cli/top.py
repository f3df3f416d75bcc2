"""`callboard top`: shows the nodes of a run that is running, on this machine or another one."""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import CallboardError, printable, printable_lines
from ..launch.launchers.screen.bottleneck import find_bottleneck
from ..launch.launchers.screen.trend import rate
from ..launch.runs.attached_run import AttachedRun, NotAnswering
from .command_parser import CommandParser

_SILENT_SECONDS = 10.0
_WIDTH = 160
"""Width of the table where the output is no terminal."""
_LEAST_WIDTHS = {"host": 120, "process": 120, "waiting": 80}
"""Columns that only terminals of at least this width have room for; the others are always shown."""


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard top",
        description="Shows processor time, memory, waiting, weight lag and restarts of all nodes of a running run.",
    )
    parser.add_argument("run", help="the run directory, a path or a URL, or host:port of the coordinator")
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--stack", metavar="NODE", help="print the Python stacks of a node such as actor/0, and end")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds between updates (2)")
    parser.add_argument("--json", action="store_true", help="print JSON, once")
    known = parser.parse_args(arguments)
    if not 0.1 <= known.seconds <= 3600:
        raise CallboardError(f"--seconds must be from 0.1 to 3600, not {known.seconds:g}")
    run = AttachedRun(known.run)
    if known.stack is not None:
        _print(run.stacks(known.stack))
        return 0
    overview = run.overview()
    console = Console(highlight=False, markup=False, emoji=False)
    if known.json:
        _print(json.dumps(overview))
    elif known.once or not console.is_terminal:
        if not console.is_terminal:
            console.width = _WIDTH
        console.print(overview_table(overview, console.width))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(run, overview, console, known.seconds)
    return 0


def _print(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(printable_lines(text), flush=True)


def _follow(run: AttachedRun, overview: Mapping[str, Any], console: Console, seconds: float) -> None:
    with Live(overview_table(overview, console.width), console=console, auto_refresh=False, screen=False) as live:
        while True:
            live.refresh()
            time.sleep(seconds)
            try:
                live.update(overview_table(run.overview(), console.width))
            except NotAnswering:
                break
    console.print(printable(f"the run in {run.run} has ended, or cannot be reached any more"), soft_wrap=True)


def overview_table(overview: Mapping[str, Any], width: int = _WIDTH) -> Group:
    """Returns the status of a run and the table of its nodes.

    Args:
      overview: see `AttachedRun.overview`.
      width: of the terminal, in characters.
    """
    parts = [
        f"{overview['environment_steps']:,} of {overview['max_steps']:,} environment steps",
        f"{rate(overview['actor/steps_per_second'])} steps/s",
        f"{overview['learner_steps']:,} learner steps",
        f"{overview['learner/steps_per_second']:,.1f} learner steps/s",
    ]
    bottleneck = find_bottleneck(overview.get("waiting", {}), overview)
    if "policy_server/open_episodes" in overview:
        parts.append(f"{overview['policy_server/open_episodes']:.0f} open episodes of simulators")
    lines = [Text("  ".join(parts))] + ([Text(printable(bottleneck.description))] if bottleneck is not None else [])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("node", "host", "process", "CPU", "memory", "waiting", "lag", "restarts", "doing"):
        if width >= _LEAST_WIDTHS.get(column, 0):
            is_number = column in ("CPU", "memory", "lag", "restarts")
            table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number or column == "node")
    for row in map(_cells, overview["table"]):
        table.add_row(*(printable(row.get(str(column.header), "")) for column in table.columns))
    return Group(*lines, Text(), table)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the cells of a node by column."""
    known = {"node": row["node"], "restarts": str(row["restarts"])}
    if "process" not in row:
        return {**known, "doing": "starting"}
    waiting = sorted(row["waiting"].items(), key=lambda item: -item[1])
    doing = row["activity"]
    if row["silent"] > _SILENT_SECONDS:
        doing = f"silent for {row['silent']:.0f} s, then {doing}"
    return {
        **known,
        "host": row["host"],
        "process": str(row["process"]),
        "CPU": f"{row['cpu']:.0%}",
        "memory": f"{row['memory'] / 2**20:,.0f} MiB",
        "waiting": ", ".join(f"{fraction:.0%} for {name}" for name, fraction in waiting[:2]) or "-",
        "lag": str(row.get("lag", "-")),
        "doing": doing,
    }
