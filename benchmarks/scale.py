"""Environment steps per second of 1 to 64 actors whose environments only wait, relative to the ideal.

A complete program runs under the `processes` launcher, IMPALA with a small network.  Each actor has 16 environments,
and a step of all of them takes 80 ms without using the CPU, like simulators on other cores.  The ideal is the rate of
the environments alone: no time is lost to acting, writing, or waiting for the learner, which has to keep up on the same
cores.
"""

import functools
import json
import pathlib
import subprocess
import tempfile
from typing import Any

from ..launch.run_directory.layout import RunDirectory
from ..runtime.deadlines import wait_until
from ..runtime.interpreter import callboard_command
from .harness import Case
from .side import Side, SideFailed
from .sleeping import SECONDS
from .start import end

_ENVS = 16
_PATIENCE_SECONDS = 900.0
_POLL_SECONDS = 0.5
_BEGUN = "first action"


class Actors(Side):
    """A run with a number of actors, measured from when all of them act.

    Args:
      actors: number of actors.
      seconds: measured time span of the run's metrics.
    """

    def __init__(self, actors: int, seconds: float):
        self._actors = actors
        self._seconds = seconds

    def measure(self) -> float:
        with tempfile.TemporaryDirectory(prefix="callboard-bench-") as directory:
            run = RunDirectory(pathlib.Path(directory) / "run")
            settings = {
                "env": "callboard.benchmarks.sleeping:sleeping",
                "actors": self._actors,
                "envs-per-actor": _ENVS,
                "evaluator": "false",
                "max-steps": 10**9,
                "run-dir": run.path,
            }
            options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
            command = subprocess.Popen(
                callboard_command("train", "impala", *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                self._wait(command, lambda: self._all_act(run))
                # The previous row may include steps from before all actors were acting.
                begun = len(_rows(run)) + 2
                self._wait(command, lambda: len(_rows(run)) > begun and self._span(run, begun)[1] >= self._seconds)
                steps, seconds = self._span(run, begun)
                return steps / seconds
            finally:
                end(command)

    def _span(self, run: RunDirectory, begun: int) -> tuple[int, float]:
        """Return the steps and seconds since the row with this index."""
        first, last = _rows(run)[begun], _rows(run)[-1]
        return last["environment_steps"] - first["environment_steps"], last["time"] - first["time"]

    def _all_act(self, run: RunDirectory) -> bool:
        logs = [run.log(f"actor/{index}") for index in range(self._actors)]
        return all(log.exists() and _BEGUN in log.read_text() for log in logs)

    def _wait(self, command: subprocess.Popen[bytes], condition: Any) -> None:
        reached = wait_until(lambda: command.poll() is not None or condition(), _PATIENCE_SECONDS, _POLL_SECONDS)
        if not reached or command.poll() is not None:
            raise SideFailed(f"the run with {self._actors} actors has ended, or has not got far enough")


def _rows(run: RunDirectory) -> list[dict[str, Any]]:
    if not run.metrics.exists():
        return []
    lines = run.metrics.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def cases(quick: bool) -> list[Case]:
    counts = (1, 2) if quick else (1, 2, 4, 8, 16, 32, 64)
    return [
        Case(
            f"{count} actors" if count > 1 else "1 actor",
            "environment steps/s",
            functools.partial(Actors, count, 2.0 if quick else 20.0),
            limit=count * _ENVS / SECONDS,
            target=0.90,
        )
        for count in counts
    ]
