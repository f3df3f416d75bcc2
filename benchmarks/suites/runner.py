"""Runs what is missing of the suites, one run at a time, the cheapest cell first; it may be killed at any moment.

Each side of a cell has a directory, `DIR/SUITE/CELL` with `seed-1` and so on, which a lock protects: several runners
take different cells.  A run that was interrupted continues from its checkpoint.  A cell whose agent has changed since
its runs were made is made again; its results are replaced when as many runs are finished as before.  The results so
far of a run that was stopped are kept too, beside those of finished runs.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence

from ...errors import CallboardError
from ...files.atomic_files import write_file
from ...files.guarded_files import read_json
from ...launch.processes.stop_signals import stop_signals
from ...launch.run_directory.run_lock import check_not_running, run_lock
from ...messages.install_commands import install_command
from ...studies.comparison.run_series import Cell, SeriesDirectory, run_series
from ..peers.rounds import PEERS
from .cell_results import CellResult, empty_result, is_current, load_result, result_path, save_result, seed_result
from .suite import PEER_AGENTS, SuiteCell

_SCRIPT = pathlib.Path(__file__).parents[1] / "peers" / "inside" / "sb3_defaults.py"
_STATE = "state.json"
_LOCK = "runner.lock"
_SAVE_SECONDS = 300
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_STOPPED = 128
_CORES: list[socket.socket] = []
"""Names of the cores that this runner has; the system frees them when it ends, however it ends."""
_PATIENT = ("--node-timeout", "7200")
"""At the lowest priority a learner step may take many times as long as by itself, and is not hanging."""


class Stopped(Exception):
    """A signal has stopped the runner."""

    def __init__(self, number: int):
        super().__init__(number)
        self.exit_code = _STOPPED + number


def run_suites(
    cells: Sequence[SuiteCell], directory: pathlib.Path, results: pathlib.Path, notify: Callable[[str], None]
) -> list[str]:
    """Makes all runs of cells that are missing.

    Args:
      cells: the cells.
      directory: where the runs are.
      results: where the results are.
      notify: receives a line about each run.

    Returns:
      The names of the runs that have failed.

    Raises:
      Stopped: a signal has stopped it; the same call continues.
      CallboardError: something cannot be read or written, or the environment of the peer is missing.
    """
    failed: list[str] = []
    busy = {cell.full_name for cell in cells if cell.missing is not None}
    for package in dict.fromkeys(cell.missing.requirement for cell in cells if cell.missing is not None):
        notify(f"environments that need {package} are left out: {install_command(package)}")
    while waiting := [
        (cell, seed)
        for cell in cells
        for seed in missing_seeds(cell, results, directory)[:1]
        if f"{cell.full_name}/seed-{seed}" not in failed and cell.full_name not in busy
    ]:
        cell, seed = min(waiting, key=lambda one: (one[0].is_ours, one[0].seconds, one[0].full_name, one[1]))
        name = f"{cell.full_name}/seed-{seed}"
        with contextlib.ExitStack() as stack:
            path = directory / cell.full_name
            try:
                check_not_running(path / _LOCK)
                stack.enter_context(run_lock(path / _LOCK, "a runner of suites"))
            except CallboardError as error:
                notify(f"{cell.full_name} is left out: {error}")
                busy.add(cell.full_name)
                continue
            if seed not in missing_seeds(cell, results, directory)[:1]:
                continue  # Another runner has finished it in the meantime.
            _discard_outdated(path, cell)
            notify(f"{name}, about {cell.seconds / 60:.0f} min of a core")
            used = _Used(path, seed)
            with used.counted():
                exit_code, stopped_by = (_run_ours if cell.is_ours else _run_peer)(path, cell, seed)
            if stopped_by is not None:
                _keep_unfinished(path, cell, seed, used.seconds, results)
                raise Stopped(stopped_by)
            if exit_code:
                failed.append(name)
                notify(f"{name} failed with exit code {exit_code}")
            _keep(path, cell, seed, exit_code, used.seconds, results)
    return failed


def missing_seeds(cell: SuiteCell, results: pathlib.Path, directory: pathlib.Path) -> list[int]:
    """Returns the seeds of the runs of a cell that are not finished, or were made with another algorithm."""
    kept = load_result(result_path(results, cell))
    made: set[int] = set(kept.seeds) if kept is not None and is_current(kept, cell) else set()
    again = load_result(directory / cell.full_name / "result.json")
    if again is not None and is_current(again, cell):
        made |= set(again.seeds)
    return [seed for seed in cell.seeds if seed not in made]


def _keep(
    path: pathlib.Path, cell: SuiteCell, seed: int, exit_code: int, cpu_seconds: float, results: pathlib.Path
) -> None:
    """Adds a run to the results of its cell."""
    final = result_path(results, cell)
    kept, again = load_result(final), load_result(path / "result.json")
    candidates = [result for result in (kept, again) if result is not None and is_current(result, cell)]
    result: CellResult = max(candidates, key=lambda one: len(one.seeds), default=empty_result(cell))
    result = result.with_seed(seed, exit_code or seed_result(path / f"seed-{seed}", cpu_seconds))
    save_result(path / "result.json", result)
    if kept is None or is_current(kept, cell) or len(result.seeds) >= len(kept.seeds):
        save_result(final, result)


def _keep_unfinished(path: pathlib.Path, cell: SuiteCell, seed: int, cpu_seconds: float, results: pathlib.Path) -> None:
    """Adds a run that was stopped after an episode to the results of its cell, unless they are of earlier runs."""
    final = result_path(results, cell)
    kept = load_result(final)
    if kept is None or not kept.seeds or is_current(kept, cell):
        with contextlib.suppress(CallboardError):
            result = kept if kept is not None and is_current(kept, cell) else empty_result(cell)
            unfinished = {**result.unfinished, seed: seed_result(path / f"seed-{seed}", cpu_seconds, is_finished=False)}
            save_result(final, dataclasses.replace(result, unfinished=unfinished))


def _discard_outdated(path: pathlib.Path, cell: SuiteCell) -> None:
    """Removes runs that were begun with other settings or another algorithm, since they cannot be continued."""
    now = empty_result(cell)
    state = {"algorithm": now.algorithm, "steps": now.steps, "settings": now.settings}
    # As JSON has it, without tuples.
    state = json.loads(json.dumps(state))
    try:
        before = read_json(path / _STATE)
    except (OSError, ValueError):
        before = None
    if before == state:
        return
    for entry in path.iterdir():
        if entry.name != _LOCK:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    write_file(path / _STATE, json.dumps(state) + "\n")


class _Used:
    """Processor seconds of a run, over all the processes in which it ran."""

    def __init__(self, path: pathlib.Path, seed: int):
        self._path = path / f"used-{seed}.json"
        self.seconds = 0.0
        with contextlib.suppress(OSError, ValueError, TypeError):
            self.seconds = float(read_json(self._path))

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        before = _children_seconds()
        try:
            yield
        finally:
            self.seconds += _children_seconds() - before
            write_file(self._path, f"{self.seconds}\n")


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run_ours(path: pathlib.Path, cell: SuiteCell, seed: int) -> tuple[int, int | None]:
    series = SeriesDirectory(path)
    one = Cell("", cell.recipe, [seed], [*cell.options, *_PATIENT])
    outcome = run_series(series, [one], lambda text: None)
    end = outcome.ends[one.run_name(seed)]
    return (end.exit_code if end is not None else 1), outcome.stopped_by


def _run_peer(path: pathlib.Path, cell: SuiteCell, seed: int) -> tuple[int, int | None]:
    """Runs the agent of Stable-Baselines3, which saves itself every few minutes and when it is stopped."""
    python = next(peer.python() for peer in PEERS if peer.venv == "sb3")
    if not python.exists():
        raise CallboardError(f"{python} does not exist; make it with benchmarks/peers/setup")
    run = path / f"seed-{seed}"
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments = [PEER_AGENTS[cell.agent], cell.env, str(cell.steps), str(seed), str(run)]
    options = ["--evaluations", str(cell.evaluations), "--save-seconds", str(_SAVE_SECONDS)]
    options += ["--env-options", json.dumps(cell.recipe.get("env_options") or {})]
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(signal.SIGTERM)

    with stop_signals(stop):
        process = subprocess.Popen(
            [str(python.absolute()), str(_SCRIPT), *arguments, *options, "--parent", str(os.getpid())],
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,
        )
        if received:
            process.send_signal(signal.SIGTERM)
        exit_code = process.wait()
    return exit_code, received[0] if received else None


def be_modest(cores: int) -> None:
    """Gives this process and its children the lowest priority, and so many of the cores that it may use.

    Cores that another runner has are taken last.
    """
    os.nice(19)
    usable = sorted(os.sched_getaffinity(0), reverse=True)
    free = list(itertools.islice(filter(_is_free, usable), cores))
    os.sched_setaffinity(0, [*free, *(core for core in usable if core not in free)][:cores])


def _is_free(core: int) -> bool:
    """Whether no other runner has a core, which then is ours until this process ends."""
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0callboard-suites-core-{core}")
    except OSError:
        holder.close()
        return False
    _CORES.append(holder)
    return True
