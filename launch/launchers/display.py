"""Terminal output of a run."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .run_outcome import OutputClosed

_LINE_SECONDS = 10.0


def make_monitor(max_steps: int) -> "LiveMonitor | LineMonitor":
    """Returns a live display on a terminal, and a line-by-line monitor elsewhere."""
    console = Console(highlight=False)
    return LiveMonitor(console, max_steps) if console.is_terminal else LineMonitor(max_steps)


class LineMonitor:
    """Prints a line every ten seconds, for logs and pipes."""

    def __init__(self, max_steps: int):
        self._max_steps = max_steps
        self._next = 0.0
        self._evaluated = None

    def status(self, status: dict[str, Any]) -> None:
        evaluated = status.get("evaluator/environment_steps")
        if time.monotonic() < self._next and evaluated == self._evaluated:
            return
        self._next = time.monotonic() + _LINE_SECONDS
        self._evaluated = evaluated
        steps = status["environment_steps"]
        parts = [f"{steps:>9,} of {self._max_steps:,} steps"]
        parts += [f"{name} {value}" for name, value in status_fields(status)]
        _print_line("  ".join(parts))

    def say(self, text: str) -> None:
        _print_line(text)

    def close(self) -> None:
        pass


class LiveMonitor:
    """Shows the progress to the step limit and the newest metrics, updated in place."""

    def __init__(self, console: Console, max_steps: int):
        self._console = console
        self._max_steps = max_steps
        # No refresh thread: if the terminal is closed, the error must be raised in the thread that writes to it.
        self._live = Live(Text("starting"), console=console, auto_refresh=False, transient=False)
        self._live.start(refresh=True)

    def status(self, status: dict[str, Any]) -> None:
        steps = status["environment_steps"]
        table = Table.grid(padding=(0, 2))
        for name, value in status_fields(status):
            table.add_row(Text(name, style="dim"), Text(value))
        headline = Table.grid(padding=(0, 2))
        headline.add_row(
            ProgressBar(total=self._max_steps, completed=min(steps, self._max_steps), width=40),
            f"{steps:,} of {self._max_steps:,} environment steps",
        )
        with _output():
            self._live.update(Group(headline, table), refresh=True)

    def say(self, text: str) -> None:
        with _output():
            self._live.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        with contextlib.suppress(OutputClosed), _output():
            self._live.stop()


def status_fields(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the metrics of a status that are shown to the user, as pairs of name and text."""
    fields = [
        ("steps/s", f"{status['actor/steps_per_second']:,.0f}"),
        ("learner steps/s", f"{status['learner/steps_per_second']:,.1f}"),
    ]
    if "actor/episode_return" in status:
        fields.append(("mean return", f"{status['actor/episode_return']:.1f}"))
    if "evaluator/return" in status:
        goal = f" (goal {status['stop_return']:g})" if status.get("stop_return") is not None else ""
        fields.append(("evaluation", f"{status['evaluator/return']:.1f} ± {status['evaluator/return_std']:.1f}{goal}"))
    if "learner/policy_lag" in status:
        fields.append(("policy lag", f"{status['learner/policy_lag']:.1f}"))
    fills = [value for name, value in status.items() if name.startswith("replay/fill")]
    if fills:
        fields.append(("replay", f"{sum(fills) / len(fills):.0%} full"))
    return fields


def _print_line(text: str) -> None:
    if sys.stdout is None:  # sys.stdout is None if the command was started without one.
        return
    with _output():
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Raises `OutputClosed` if the output cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputClosed(error) from error
