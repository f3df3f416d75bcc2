"""Terminal output of a run."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ....errors import counted, printable, printable_lines, rounded, with_deviation
from ....runtime.deadlines import Deadline
from ...nodes.coordination.run_metrics import RateWindow
from ..run_outcome import OutputClosed
from .bottleneck import find_bottleneck
from .trend import Trend, duration, rate, time_left

_LINE_SECONDS = 10.0
_RATE_SECONDS = 30.0
_KNOWN_SECONDS = 10.0
"""Time over which steps must be known before the time left is shown."""
_SHOWN_RESTARTS = 4


def make_monitor(max_steps: int) -> "LiveMonitor | LineMonitor":
    """Returns a live display on a terminal, and a line-by-line monitor elsewhere."""
    console = Console(highlight=False)
    return LiveMonitor(console, max_steps) if console.is_terminal else LineMonitor(max_steps)


class MessageMonitor:
    """Prints a run's messages, and nothing else."""

    def status(self, status: dict[str, Any]) -> None:
        pass

    def notify(self, text: str) -> None:
        print_line(text)


class LineMonitor(MessageMonitor):
    """Prints a line every ten seconds, for logs and pipes."""

    def __init__(self, max_steps: int):
        self._progress = RunProgress(max_steps)
        self._next_line = Deadline(0.0)
        self._evaluated = None

    def status(self, status: dict[str, Any]) -> None:
        self._progress.update(status)
        evaluated = status.get("evaluator/environment_steps")
        if not self._next_line.has_passed and evaluated == self._evaluated:
            return
        self._next_line.restart(_LINE_SECONDS)
        self._evaluated = evaluated
        evaluating = evaluation_progress(status)
        if evaluating:
            print_line(evaluating)
            return
        done, limit, unit = self._progress.counted(status)
        unit = unit.removeprefix("environment ")
        parts = [f"{done:>9,} of {limit:,} {unit}" if limit else f"{done:>9,} {unit}"]
        parts += [f"{name} {value}" for name, value in self._progress.fields(status)]
        print_line("  ".join(parts))

    def close(self) -> None:
        pass


class LiveMonitor:
    """Shows the progress to the step limit and the newest metrics, updated in place."""

    def __init__(self, console: Console, max_steps: int):
        self._console = console
        self._progress = RunProgress(max_steps)
        # No refresh thread: if the terminal is closed, the error must be raised in the thread that writes to it.
        self._live = Live(Text("starting"), console=console, auto_refresh=False, transient=False)
        self._live.start(refresh=True)

    def status(self, status: dict[str, Any]) -> None:
        self._progress.update(status)
        steps, limit, unit = self._progress.counted(status)
        done = f"{steps:,} of {limit:,} {unit}" if limit else f"{steps:,} {unit}"
        done = evaluation_progress(status) or done
        view = progress_view(self._progress, status, steps / limit if limit else 0.0, done)
        with _output():
            self._live.update(view, refresh=True)

    def notify(self, text: str) -> None:
        with _output():
            self._live.console.print(Text(printable_lines(text)), soft_wrap=True)

    def close(self) -> None:
        with contextlib.suppress(OutputClosed), _output():
            self._live.stop()


def progress_view(progress: "RunProgress", status: dict[str, Any], fraction: float, done: str) -> Group:
    """Returns a bar that is as wide as the screen, and what is shown of a status below it.

    Args:
      progress: has received the status.
      status: the status.
      fraction: how much is done.
      done: the same in words.
    """
    fraction = min(1.0, fraction)
    headline = Table.grid(padding=(0, 2), expand=True)
    headline.add_column(ratio=1)
    headline.add_column(no_wrap=True)
    headline.add_row(ProgressBar(total=1.0, completed=fraction), f"{done} ({fraction:.0%})")
    table = Table.grid(padding=(0, 2))
    for name, value in progress.fields(status, in_words=True):
        table.add_row(Text(name, style="dim"), Text(value))
    return Group(headline, table)


class RunProgress:
    """The state of a run's display: its newest status, and the changes of the last ones.

    Args:
      max_steps: environment steps after which the run ends.
      clock: returns seconds.
    """

    def __init__(self, max_steps: int, clock: Callable[[], float] = time.monotonic):
        self.max_steps = max_steps
        self._clock = clock
        self._begin = clock()
        self._window = RateWindow(_RATE_SECONDS)
        self._first: tuple[int, int] | None = None
        self._seconds_left: float | None = None
        self._trends: dict[str, Trend] = {}
        self._arrows: dict[str, str] = {}
        self._best = -math.inf

    def counted(self, status: dict[str, Any]) -> tuple[int, int | None, str]:
        """Returns the steps that the run is measured by, their limit if there is one, and what they are."""
        if status.get("actors") == 0:
            return status["learner_steps"], status.get("max_learner_steps"), "learner steps"
        return status["environment_steps"], self.max_steps, "environment steps"

    def update(self, status: dict[str, Any]) -> None:
        """Takes a status, which need not be shown."""
        steps, learner_steps = status["environment_steps"], status["learner_steps"]
        self._first = self._first or (steps, learner_steps)
        if (steps, learner_steps) != self._first:  # How long nodes start and compile says nothing about the rest.
            self._estimate(status, steps, learner_steps)
        for name in ("actor/episode_return", "evaluator/return"):
            if name in status:
                self._arrows[name] = self._trends.setdefault(name, Trend()).update(status[name])
        self._best = max(self._best, status.get("evaluator/return", -math.inf))

    def _estimate(self, status: dict[str, Any], steps: int, learner_steps: int) -> None:
        done = self._window.update(self._clock(), steps, learner_steps)
        estimates = [status.get("seconds_left")]
        estimates.append(time_left(self.max_steps - steps, done.environment_steps, done.seconds))
        limit = status.get("max_learner_steps")
        if limit is not None:
            estimates.append(time_left(limit - learner_steps, done.learner_steps, done.seconds))
        # The run ends at the limit that it reaches first.
        left = min((seconds for seconds in estimates if seconds is not None), default=None)
        self._seconds_left = left if done.seconds >= _KNOWN_SECONDS else None

    def fields(self, status: dict[str, Any], in_words: bool = False) -> list[tuple[str, str]]:
        """Returns the shown parts of the last status that `update` received, as pairs of name and text.

        Args:
          status: the status.
          in_words: whether there is room for sentences.
        """
        fields = []
        if in_words:
            fields.append(("elapsed", duration(self._clock() - self._begin)))
        if self._seconds_left:
            fields.append(("time left", duration(self._seconds_left)))
        if status.get("actors") != 0:
            fields.append(("steps/s", rate(status["actor/steps_per_second"])))
        fields.append(("learner steps/s", _learner_rate(status["learner/steps_per_second"])))
        if "actor/episode_return" in status:
            fields.append(("mean return", self._with_trend(status, "actor/episode_return")))
        if "evaluator/return" in status:
            fields.append(("evaluation", self._evaluation(status)))
        for name, value in status.items():
            if name.startswith("episode/") and f"{name}_min" in status:
                low, high = status[f"{name}_min"], status[f"{name}_max"]
                fields.append((name.removeprefix("episode/"), f"{value:.3g} (from {low:.3g} to {high:.3g})"))
        if "learner/policy_lag" in status:
            fields.append(("policy lag", f"{status['learner/policy_lag']:.1f}"))
        if "policy_server/open_episodes" in status:
            fields.append(("open episodes", f"{status['policy_server/open_episodes']:.0f} of simulators"))
        fills = [value for name, value in status.items() if name.startswith("replay/fill")]
        if fills and not status.get("has_queue"):
            fields.append(("replay", f"{sum(fills) / len(fills):.0%} full"))
        bottleneck = find_bottleneck(status.get("waiting", {}), status)
        if bottleneck is not None and in_words:
            fields.append(("waiting", bottleneck.description))
        elif bottleneck is not None and bottleneck.part == "link":
            fields.append(("bottleneck link:", bottleneck.description))
        elif bottleneck is not None and bottleneck.part:
            name = "waits for" if bottleneck.part == "simulators" else "bottleneck"
            fields.append((name, bottleneck.part))
        restarts = status.get("node_restarts")
        if restarts:
            names = ", ".join(f"{name} {count}" for name, count in sorted(restarts.items())[:_SHOWN_RESTARTS])
            more = len(restarts) - _SHOWN_RESTARTS
            if more > 0:
                names += f" and {more} more node{'s' if more > 1 else ''}"
            fields.append(("restarts", f"{sum(restarts.values())} ({names})"))
        return [(printable(name), printable(text)) for name, text in fields]

    def _evaluation(self, status: dict[str, Any]) -> str:
        remarks = []
        if status.get("stop_return") is not None:
            remarks.append(f"goal {status['stop_return']:g}")
        if self._best > status["evaluator/return"]:
            remarks.append(f"best {rounded(self._best)}")
        text = with_deviation(status["evaluator/return"], status["evaluator/return_std"])
        arrow = self._arrows.get("evaluator/return")
        text = f"{text} {arrow}" if arrow else text
        return f"{text} ({', '.join(remarks)})" if remarks else text

    def _with_trend(self, status: dict[str, Any], name: str) -> str:
        arrow = self._arrows.get(name)
        return f"{rounded(status[name])}{f' {arrow}' if arrow else ''}"


def _learner_rate(per_second: float) -> str:
    return f"{per_second:,.1f}" if per_second >= 0.1 else rate(per_second)


def evaluation_progress(status: dict[str, Any]) -> str:
    """Returns how far the final evaluation is, in words; empty as long as the run has not come to it."""
    ended = status.get("evaluation")
    if not ended or not status.get("stopping"):
        return ""
    return f"evaluating: {ended[0]:,} of {counted(ended[1], 'episode')}"


def print_line(text: str) -> None:
    """Prints lines, without letters that the output does not have."""
    if sys.stdout is None:  # sys.stdout is None if the command was started without one.
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with _output():
        sys.stdout.write(printable_lines(text).encode(encoding, "replace").decode(encoding) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Raises `OutputClosed` if the output cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputClosed(error) from error
