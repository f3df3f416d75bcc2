"""A program that trains until it is ended, and the counters of its processes."""

import contextlib
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import psutil

from ...runtime.deadlines import wait_until
from .inside.work import TALLY

VENVS = "CALLBOARD_PEERS_VENVS"
"""Environment variable with the directory of the virtual environments; the default is `venvs` next to this file."""

_POLL_SECONDS = 0.1
_END_SECONDS = 5.0
"""Time for a clean end.  Nothing depends on it; one of our runs has stopped its processes by then."""
_LOG_LINES = 15
_SHARED_MEMORY = pathlib.Path("/dev/shm")


def interpreter(venv: str) -> pathlib.Path:
    """Return the interpreter of a virtual environment, which need not exist."""
    directory = os.environ.get(VENVS)
    return (pathlib.Path(directory) if directory else pathlib.Path(__file__).parent / "venvs") / venv / "bin" / "python"


class ProgramFailed(Exception):
    """The program has ended, or has not started to learn in time; contains the end of its log."""


class Counts(NamedTuple):
    """Counts up to the time `seconds` on the clock of `time.monotonic`."""

    seconds: float
    steps: int
    frames: int
    updates: int


class Episode(NamedTuple):
    """An episode that has ended, on the same clock."""

    seconds: float
    episode_return: float


class Tally:
    """The counters that processes have written to a directory; see `inside.work`."""

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self._read: dict[pathlib.Path, int] = {}
        self._episodes: list[Episode] = []

    def counts(self) -> Counts:
        now = time.monotonic()
        (steps,) = self._sum("steps", 1)
        frames, updates = self._sum("trained", 2)
        return Counts(now, steps, frames, updates)

    def episodes(self) -> list[Episode]:
        """Return all episodes that have ended, in order of time."""
        for path in self._directory.glob("episodes-*"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                # The last line may be incomplete.
                lines, end, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(lines) + len(end)
            for line in lines.splitlines():
                seconds, episode_return, _ = line.split()
                self._episodes.append(Episode(float(seconds), float(episode_return)))
        self._episodes.sort()
        return self._episodes

    def _sum(self, kind: str, size: int) -> list[int]:
        layout = struct.Struct(f"{size}q")
        contents = [path.read_bytes() for path in self._directory.glob(f"{kind}-*")]
        values = [layout.unpack(content) for content in contents if len(content) == layout.size]
        return [sum(column) for column in zip(*values, strict=True)] if values else [0] * size


class Program:
    """A program that was started, and the time right before its start.

    Args:
      arguments: its command line.
      directory: directory for its files; the path must be short, because it is used for sockets.
      end_signal: signal on which it ends cleanly.
    """

    def __init__(self, arguments: Sequence[str], directory: pathlib.Path, end_signal: signal.Signals):
        tally, self._log = directory / "tally", directory / "log"
        tally.mkdir()
        self.tally = Tally(tally)
        self._mark = f"{TALLY}={tally}"
        self._end_signal = end_signal
        with self._log.open("wb") as log:
            self.begun = time.monotonic()
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, TALLY: str(tally), "RAY_AUTH_MODE": "disabled", "TF_CPP_MIN_LOG_LEVEL": "2"},
                start_new_session=True,
            )

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds, up to `seconds` after the program's start; return whether it holds.

        Raises:
          ProgramFailed: the program has ended.
        """

        def holds() -> bool:
            if condition():
                return True
            if self._process.poll() is not None:
                raise ProgramFailed(f"it has ended with code {self._process.returncode}:\n{self.log()}")
            return False

        return wait_until(holds, self.begun + seconds - time.monotonic(), _POLL_SECONDS)

    def log(self) -> str:
        """Return the last lines of its output."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def close(self) -> None:
        """End the program and every process that it has started."""
        started = self._started()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._end_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        started |= self._started()
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # psutil 7 does not expect it: Linux since 6.16, while a process is being removed.
        with contextlib.suppress(FileNotFoundError):
            psutil.wait_procs(started, _END_SECONDS)
        self._process.wait()
        for process in started:
            # PyTorch's shared memory, which would otherwise remain until the machine is restarted.
            for path in _SHARED_MEMORY.glob(f"torch_{process.pid}_*"):
                path.unlink(missing_ok=True)

    def _started(self) -> set[psutil.Process]:
        """Return its processes: all descendants, and orphans, which are found by the directory in their environment."""
        found = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if f"{TALLY}={process.environ().get(TALLY, '')}" == self._mark:
                    found.add(process)
        return found


@contextlib.contextmanager
def started(command: Callable[[str], Sequence[str]], end_signal: signal.Signals = signal.SIGTERM) -> Iterator[Program]:
    """Start the program of a command line, which is given a directory for its files; both are removed afterwards."""
    # With a long `TMPDIR`, the paths of Ray's sockets would exceed the system's limit.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="callboard-", dir="/tmp"))
    program = Program(command(str(directory)), directory, end_signal)
    try:
        yield program
    finally:
        program.close()
        shutil.rmtree(directory, ignore_errors=True)


class Rates(NamedTuple):
    """Environment steps per second, and frames learned from per second, while learning."""

    steps: float
    frames: float


def rates(program: Program, warm_up: float, seconds: float, patience: float) -> Rates:
    """Return the rates between two updates that are at least `seconds` apart.

    The rates are measured from one update to another, because libraries that alternate between acting and learning have
    acted as much as they have learned only at these times.

    Args:
      program: a program that was started.
      warm_up: seconds from its first update that are not measured.
      seconds: minimum measured time.
      patience: seconds from its start by which the measurement must be complete.

    Raises:
      ProgramFailed: it has ended, or has not completed the measurement in time.
    """
    reached: list[Counts] = []

    def has_learned() -> bool:
        counts = program.tally.counts()
        if counts.updates > (reached[-1].updates if reached else 0):
            reached.append(counts)
        first = next((one for one in reached if one.seconds >= reached[0].seconds + warm_up), None)
        return first is not None and reached[-1].seconds - first.seconds >= seconds

    if not program.wait(has_learned, patience):
        raise ProgramFailed(f"it has made too few updates in {patience:.0f} s:\n{program.log()}")
    first = next(one for one in reached if one.seconds >= reached[0].seconds + warm_up)
    span = reached[-1].seconds - first.seconds
    return Rates((reached[-1].steps - first.steps) / span, (reached[-1].frames - first.frames) / span)


def seconds_to(program: Program, mean_return: float, episodes: int, limit: float) -> float | None:
    """Return the seconds from the command until the mean return is reached; None if that takes too long.

    Args:
      program: a program that was started.
      mean_return: mean return of the last `episodes` training episodes, with exploring actions.
      episodes: number of episodes.
      limit: seconds from its start after which the measurement is given up.

    Raises:
      ProgramFailed: it has ended.
    """
    found: list[float] = []

    def has_reached() -> bool:
        moment = moment_of(program.tally.episodes(), mean_return, episodes)
        found[:] = [] if moment is None else [moment]
        return bool(found)

    return found[0] - program.begun if program.wait(has_reached, limit) else None


def moment_of(ended: Sequence[Episode], mean_return: float, episodes: int) -> float | None:
    """Return when `episodes` consecutive episodes first had this mean return; None if they never had."""
    total = 0.0
    for index, episode in enumerate(ended):
        total += episode.episode_return
        if index >= episodes:
            total -= ended[index - episodes].episode_return
        if index >= episodes - 1 and total >= mean_return * episodes:
            return episode.seconds
    return None
