"""A bar for the piece of a run that a session trains, in terminals, notebooks and pipes."""

import html
import io
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ....runtime.deadlines import Deadline
from .display import LineMonitor, RunProgress, progress_view

_REFRESH_SECONDS = 0.25
_NOTEBOOK_WIDTH = 100

_UNITS = {"steps": "environment steps", "learner_steps": "learner steps", "seconds": "seconds"}


class _Screen(Protocol):
    def update(self, status: dict[str, Any], view: Group) -> None:
        """Shows a status."""

    def close(self) -> None:
        """Leaves the last status on the screen."""


class PieceProgress:
    """Shows how far a run is to the first of some limits.

    Args:
      limits: `steps`, `learner_steps` and `seconds` of the piece; None for no limit.
      begin: status at its beginning.
      clock: returns seconds.
    """

    def __init__(
        self,
        limits: Mapping[str, float | None],
        begin: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._begin = {"steps": begin["environment_steps"], "learner_steps": begin["learner_steps"], "seconds": clock()}
        self._clock = clock
        last = int(min(begin["environment_steps"] + self._limits.get("steps", math.inf), begin["max_steps"]))
        self._progress = RunProgress(last, clock)
        self._screen = _make_screen(last)
        self._due = Deadline(0.0, clock)

    def show(self, status: dict[str, Any]) -> None:
        """Shows a status, unless another was just shown."""
        if self._due.has_passed:
            self._due.restart(_REFRESH_SECONDS)
            self._show(status)

    def close(self, status: dict[str, Any]) -> None:
        """Shows the last status and leaves it on the screen."""
        self._show(status)
        self._screen.close()

    def _show(self, status: dict[str, Any]) -> None:
        now = {"steps": status["environment_steps"], "learner_steps": status["learner_steps"], "seconds": self._clock()}
        done = {name: min(now[name] - self._begin[name], limit) for name, limit in self._limits.items()}
        nearest = max(self._limits, key=lambda name: done[name] / self._limits[name])
        if "seconds" in done:
            status = {**status, "seconds_left": self._limits["seconds"] - done["seconds"]}
        if "learner_steps" in done:
            status = {**status, "max_learner_steps": self._begin["learner_steps"] + self._limits["learner_steps"]}
        self._progress.update(status)
        text = f"{done[nearest]:,.0f} of {self._limits[nearest]:,.0f} {_UNITS[nearest]}"
        view = progress_view(self._progress, status, done[nearest] / self._limits[nearest], text)
        self._screen.update(status, view)


class _TerminalScreen:
    def __init__(self, console: Console):
        # Messages of the run are printed above it.
        self._live = Live(Text("starting"), console=console, auto_refresh=False)
        self._live.start()

    def update(self, status: dict[str, Any], view: Group) -> None:
        self._live.update(view, refresh=True)

    def close(self) -> None:
        self._live.stop()


class NotebookScreen:
    """The output of a notebook's cell, which is replaced in place; it needs no widgets."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle = display(_in_cell(Text("starting")), raw=True, display_id=True)

    def update(self, status: dict[str, Any], view: Group) -> None:
        self._handle.update(_in_cell(view), raw=True)

    def close(self) -> None:
        pass


class _LineScreen:
    def __init__(self, max_steps: int):
        self._monitor = LineMonitor(max_steps)

    def update(self, status: dict[str, Any], view: Group) -> None:
        self._monitor.status(status)

    def close(self) -> None:
        pass


def _make_screen(max_steps: int) -> _Screen:
    console = Console(highlight=False)
    if console.is_jupyter:
        return NotebookScreen()
    return _TerminalScreen(console) if console.is_terminal else _LineScreen(max_steps)


def _in_cell(view: Group | Text) -> dict[str, str]:
    """Returns a view as a notebook shows it, by MIME type."""
    console = Console(file=io.StringIO(), width=_NOTEBOOK_WIDTH, force_jupyter=False, record=True)
    console.print(view)
    text = "\n".join(line.rstrip() for line in console.export_text().splitlines())
    return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
