"""A series of runs, one after the other, each in a process and a directory of its own; it can be interrupted.

The runs of one *cell* differ in their seeds alone:

    DIR/progress.json             which runs there are, and how those that have ended did
    DIR/CELL/settings.yaml        settings of the cell's runs, a recipe
    DIR/CELL/seed-1/              a run directory

Runs save their replay until they are finished, unless their settings have `checkpoint_replay`, so that a run that was
interrupted continues with it.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import CallboardError
from ...files.atomic_files import write_file
from ...files.guarded_files import read_json
from ...launch.experiments.new_or_resumed import check_can_be_made
from ...launch.experiments.option_parsing import option_name
from ...launch.experiments.parts.quantities import Seed
from ...launch.experiments.policy_settings import AgentSettings, policy_setting
from ...launch.experiments.settings import Settings, plain
from ...launch.experiments.yaml_files import format_yaml, read_yaml
from ...launch.processes.stop_signals import STOP_SIGNALS, stop_signals
from ...launch.run_directory.layout import RunDirectory
from ...launch.run_directory.run_lock import is_locked, run_lock
from ...runtime.deadlines import wait_until
from ...runtime.interpreter import callboard_command
from ...settings.setting_types import converted

_PROGRESS = "progress.json"
_SETTINGS = "settings.yaml"
_EXPERIMENT = "experiment.yaml"
_OF_EACH_RUN = ("run_dir", "seed")
_PR_SET_PDEATHSIG = 1
_END_SECONDS = 60.0
_KEEPS_REPLAY = "checkpoint_replay"
_SERIES_SETTINGS = {_KEEPS_REPLAY: True, "replay_checkpoint_every": 1800.0}
OF_SERIES = "--of-series"
"""Option of `callboard train` for the runs of a series, after which the series says what is next."""


class RunEnd(NamedTuple):
    """How a run of a series ended."""

    exit_code: int
    seconds: float
    """Seconds of its last process."""

    @property
    def is_finished(self) -> bool:
        return self.exit_code == 0


@dataclasses.dataclass(frozen=True)
class Cell:
    """Runs with the same settings but for the seed.

    Attributes:
      name: directory of the runs in that of the series; empty if the series has one cell.
      recipe: their settings, without seed and run directory, see `recipe_of`.
      seeds: seeds of the runs.
      options: further options of `callboard train`, such as `("--launcher", "inline")`.
    """

    name: str
    recipe: Mapping[str, Any]
    seeds: Sequence[int]
    options: Sequence[str] = ()

    def run_name(self, seed: int) -> str:
        return f"{self.name}/seed-{seed}".lstrip("/")


class SeriesOutcome(NamedTuple):
    """How a series ended."""

    ends: Mapping[str, RunEnd | None]
    """How each run ended, by name; None for one that was not started or was interrupted."""
    stopped_by: int | None
    """The signal that stopped the series."""

    @property
    def failed(self) -> list[str]:
        return [name for name, end in self.ends.items() if end is not None and not end.is_finished]

    @property
    def exit_code(self) -> int:
        return 128 + self.stopped_by if self.stopped_by is not None else int(bool(self.failed))

    def summary(self) -> str:
        """Returns one line: how many runs are finished, and which failed."""
        finished = sum(end is not None and end.is_finished for end in self.ends.values())
        failed = f"; failed: {', '.join(self.failed)}" if self.failed else ""
        return f"{finished} of {len(self.ends)} runs are finished{failed}"


class SeriesDirectory:
    """Layout of the directory of a series."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path / _PROGRESS)  # Also False for what cannot be a path.

    def run(self, name: str) -> pathlib.Path:
        return self.path / name

    def settings(self, cell: str) -> pathlib.Path:
        return self.path / cell / _SETTINGS

    def has_begun(self, name: str) -> bool:
        return (self.run(name) / _EXPERIMENT).exists()

    def read_progress(self) -> dict[str, RunEnd | None]:
        """Returns how the runs ended, by name; empty for a new series.

        Raises:
          CallboardError: the file is damaged.
        """
        if not self.exists:
            return {}
        try:
            content = read_json(self.path / _PROGRESS)
            ends = converted(_PROGRESS, content, dict[str, tuple[int, float] | None])
        except (CallboardError, OSError, ValueError) as error:
            raise self._damaged() from error
        return {name: None if end is None else RunEnd(*end) for name, end in ends.items()}

    def read_seeds(self) -> list[int]:
        """Returns the seeds of the runs of a series of one cell.

        Raises:
          CallboardError: the file is damaged, it is that of a study, or the settings of the runs are missing.
        """
        names = list(self.read_progress())
        if any("/" in name for name in names):
            raise CallboardError(f"the runs in {self.path} are those of a study; continue it with callboard study")
        try:
            seeds = converted("seeds", [name.removeprefix("seed-") for name in names], list[Seed])
        except CallboardError as error:
            raise self._damaged() from error
        if not seeds or names != [f"seed-{seed}" for seed in seeds]:
            raise self._damaged()
        if not self.settings("").exists():
            raise CallboardError(f"the settings of the runs, {self.settings('')}, are missing; replace them by a copy")
        return seeds

    def _damaged(self) -> CallboardError:
        return CallboardError(f"{self.path / _PROGRESS} is damaged; replace it by a copy, or name another directory")

    def write_progress(self, ends: Mapping[str, RunEnd | None]) -> None:
        rows = [f"{json.dumps(name)}: {json.dumps(end)}" for name, end in ends.items()]
        write_file(self.path / _PROGRESS, "{\n" + ",\n".join(rows) + "\n}\n")

    def check(self, cells: Iterable[Cell]) -> None:
        """Refuses a directory that belongs to something else, or to a series with other settings.

        Raises:
          CallboardError: one line that says what is wrong and how to fix it.
        """
        check_can_be_made(self.path)
        if (self.path / _EXPERIMENT).exists():
            raise CallboardError(f"there is already a run in {self.path}; name another directory")
        self.read_progress()
        for cell in cells:
            path, begun = self.settings(cell.name), self.first_begun(cell.name)
            if begun is None:
                continue
            if not path.exists():
                raise CallboardError(
                    f"there is already a run in {begun}, and no {path} that says what it belongs to; name another "
                    "directory"
                )
            if read_yaml(path, links=False) != dict(cell.recipe):
                raise CallboardError(
                    f"the settings have changed since {path} was written, and its runs could not be compared; name "
                    "another directory, or remove this one"
                )

    def first_begun(self, cell: str) -> pathlib.Path | None:
        """Returns the directory of a run of a cell that has begun; None if there is none."""
        return min((path.parent for path in (self.path / cell).glob(f"seed-*/{_EXPERIMENT}")), default=None)

    def write_settings(self, cells: Iterable[Cell]) -> None:
        """Makes the directories, and writes the settings of each cell of which no run has begun."""
        for cell in cells:
            path = self.settings(cell.name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists() or self.first_begun(cell.name) is None:
                write_file(path, format_yaml(dict(cell.recipe)))


def recipe_of(settings: Settings) -> dict[str, Any]:
    """Returns settings as a recipe, without seed and run directory."""
    recipe = {key: value for key, value in settings.of_run.items() if key not in _OF_EACH_RUN}
    if "policies" in recipe:
        recipe["policies"] = {name: policy_setting(policy) for name, policy in recipe["policies"].items()}
    return plain({"agent": policy_setting(AgentSettings(settings.agent, settings.of_agent)), **recipe})


def run_series(directory: SeriesDirectory, cells: Sequence[Cell], notify: Callable[[str], None]) -> SeriesOutcome:
    """Runs the runs that are not finished, one after the other; a run that fails does not stop the others.

    Args:
      directory: directory of the series, already checked.
      cells: its cells.
      notify: receives a line before each run, and about each that fails.

    Raises:
      CallboardError: the directory cannot be written, or another process runs there.
    """
    with run_lock(directory.path / "lock", "a series of runs"):
        directory.write_settings(cells)
        before = directory.read_progress()
        if not any(map(directory.has_begun, before)):
            before = {}
        planned = {cell.run_name(seed): (cell, seed) for cell in cells for seed in cell.seeds}
        # A run whose directory was deleted is made again.
        ends = {name: before.get(name) if directory.run(name).is_dir() else None for name in planned}
        directory.write_progress({**before, **ends})
        stopped_by = None
        for number, (name, (cell, seed)) in enumerate(planned.items(), 1):
            end = ends[name]
            if end is not None and end.is_finished:
                notify(f"run {number} of {len(planned)}, {name}, is already finished")
                continue
            ends[name] = None
            notify(f"run {number} of {len(planned)}: {name}")
            _let_end(directory.run(name))
            begun = time.monotonic()
            exit_code, stopped_by = _run_process(_arguments(directory, cell, seed))
            if stopped_by is None:
                ends[name] = RunEnd(exit_code, round(time.monotonic() - begun, 1))
                if not exit_code and _KEEPS_REPLAY not in cell.recipe:
                    _remove_replay(RunDirectory(directory.run(name)))
                if exit_code:
                    logs = directory.run(name) / "logs"
                    notify(f"{name} failed with exit code {exit_code}{f'; see {logs}' if logs.exists() else ''}")
            directory.write_progress({**before, **ends})
            if stopped_by is not None:
                break
    return SeriesOutcome(ends, stopped_by)


def _let_end(run: pathlib.Path) -> None:
    """Waits for a run whose series was killed, which has been stopped and is writing its last checkpoint."""
    wait_until(lambda: not is_locked(run / "lock"), _END_SECONDS)


def _arguments(directory: SeriesDirectory, cell: Cell, seed: int) -> list[str]:
    run_name = cell.run_name(seed)
    run = directory.run(run_name)
    if directory.has_begun(run_name):
        begin = ["--resume"]
    else:
        begin = ["--recipe", str(directory.settings(cell.name)), "--seed", str(seed)]
    of_series = [f"{option_name(key)}={value}" for key, value in _SERIES_SETTINGS.items() if key not in cell.recipe]
    return ["train", *begin, "--run-dir", str(run), *of_series, OF_SERIES, *cell.options]


def _remove_replay(run: RunDirectory) -> None:
    """Removes the replay of a finished run and of its policies; what cannot be removed stays."""
    for each in (run, *run.policies.values()):
        shutil.rmtree(each.replay(0).parent, ignore_errors=True)


def _run_process(arguments: Sequence[str]) -> tuple[int, int | None]:
    """Runs the command `callboard`; returns its exit code, and the signal that stopped it.

    The process is in a session of its own, so that a terminal's Ctrl-C arrives once, through this process.  It is
    stopped by SIGTERM if this process dies.
    """
    before = (
        f"import ctypes, os; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
        f"os.getppid() == {os.getpid()} or sys.exit(143)"
    )
    received: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)

    with stop_signals(stop):
        process = subprocess.Popen(
            callboard_command(*arguments, before=before, in_new_session=True), start_new_session=True
        )
        if received:
            process.send_signal(received[0])
        exit_code = process.wait()
    if received:
        return exit_code, received[0]
    # Somebody has stopped the run itself: the series was meant as well.
    return exit_code, exit_code - 128 if exit_code - 128 in STOP_SIGNALS else None
