"""Seconds from the command to the learner's first step, relative to `import tensorflow`.

Our side is `callboard train --recipe impala-cartpole`, as typed by a user: it includes the processes of coordinator,
replay, learner, two actors and an evaluator, the first batch of experience, and the compilation of the learner's step.
The other side is a Python process that imports TensorFlow and ends, the minimum for any training with TensorFlow.
"""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

from ..launch.run_directory.layout import RunDirectory
from ..runtime.deadlines import wait_until
from ..runtime.interpreter import callboard_command, python_command
from .harness import Case
from .side import Side, SideFailed

_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.005
_FIRST_STEP = "first learner step done"


class Command(Side):
    """The command, until the learner's log reports its first step."""

    def measure(self) -> float:
        with tempfile.TemporaryDirectory(prefix="callboard-bench-") as directory:
            run = pathlib.Path(directory) / "run"
            arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", str(run)]
            begun = time.perf_counter()
            command = subprocess.Popen(
                callboard_command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
            try:
                log = RunDirectory(run).log("learner/0")
                stepped = wait_until(
                    lambda: command.poll() is not None or (log.exists() and _FIRST_STEP in log.read_text()),
                    _PATIENCE_SECONDS,
                    _POLL_SECONDS,
                )
                if not stepped or command.poll() is not None:
                    raise SideFailed("the learner has made no step")
                return time.perf_counter() - begun
            finally:
                end(command)


class ImportTensorFlow(Side):
    """A new Python process."""

    def measure(self) -> float:
        begun = time.perf_counter()
        subprocess.run(
            python_command("import tensorflow"),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun


def end(command: subprocess.Popen[bytes]) -> None:
    """End a `callboard train` as Ctrl-C does, and wait until all of its processes are gone."""
    command.send_signal(signal.SIGINT)
    try:
        command.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()


def cases(quick: bool) -> list[Case]:
    return [Case("first learner step", "s", Command, ImportTensorFlow, target=2.0, higher_is_better=False)]
