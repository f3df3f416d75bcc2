"""Starting the real command, and looking at what it leaves behind."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

ENVIRONMENTS = pathlib.Path(__file__).parent / "environments"


class CommandRun:
    """A `callboard` command in a session of its own, and all processes that it ever had."""

    def __init__(self, arguments, directory):
        self.directory = directory
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.run_dir = directory / "run"
        self.output = directory / "output.txt"
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ENVIRONMENTS)}
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "callboard.launch.command", *map(str, arguments)],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.seen: dict[int, psutil.Process] = {}

    def look(self):
        """Remembers the processes that there are now."""
        try:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self.seen.setdefault(process.pid, process)
        except psutil.NoSuchProcess:
            pass

    def wait(self, timeout=120.0):
        """Waits for the end, and gives the exit code."""
        self.wait_until(lambda: self.process.poll() is not None, timeout)
        return self.process.returncode

    def wait_until(self, condition, timeout=120.0):
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not in time; the output was:\n{self.text()}"
            self.look()
            time.sleep(0.1)

    def wait_for_steps(self, steps, counter="environment_steps"):
        self.wait_until(lambda: self.process.poll() is not None or self.rows() and self.rows()[-1][counter] >= steps)
        assert self.process.poll() is None, self.text()

    def rows(self):
        """The rows of metrics so far."""
        path = self.run_dir / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def text(self):
        return self.output.read_text()

    def pid_of(self, node):
        """The process of a node in its present life."""
        log = self.run_dir / "logs" / f"{node.replace('/', '-')}.log"
        return int(re.findall(r"process (\d+)", log.read_text())[-1])

    def interrupt(self):
        """Ctrl-C, as a terminal sends it: to every process of the group."""
        self.look()
        os.killpg(self.process.pid, signal.SIGINT)

    def leftovers(self):
        """Processes that still run, ports on which they listen, and temporary files."""
        alive = []
        for process in self.seen.values():
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(f"{process.pid} {process.cmdline()}")
        files = [str(path) for path in self.temporary.rglob("*")]
        files += [str(path) for path in self.run_dir.glob("tmp/**/*")]
        return alive + files

    def end(self):
        self.look()
        self.process.kill()
        for process in self.seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def command_run():
    """The class, for fixtures that outlive one test."""
    return CommandRun


@pytest.fixture
def start(tmp_path):
    """Starts `callboard` with these arguments; `train` writes to `tmp_path / "run"`."""
    runs = []

    def start_command(*arguments):
        runs.append(CommandRun(arguments, tmp_path))
        return runs[-1]

    yield start_command
    for run in runs:
        run.end()


@pytest.fixture
def train(start, tmp_path):
    """Starts `callboard train` with a recipe, or with an agent's defaults."""

    def start_training(*arguments, recipe="impala-cartpole"):
        settings = ["--recipe", recipe] if recipe else ["impala"]
        return start("train", *settings, "--run-dir", tmp_path / "run", *arguments)

    return start_training


@pytest.fixture(
    scope="session",
    params=[
        "impala-cartpole",
        pytest.param("apex-cartpole", marks=pytest.mark.slow),
        pytest.param("ppo-cartpole", marks=pytest.mark.slow),
        pytest.param("r2d2-cartpole-masked", marks=pytest.mark.slow),
        pytest.param("sac-pendulum", marks=pytest.mark.slow),
    ],
)
def recipe(request):
    """A recipe of every agent: what holds for one of them must hold for all."""
    return request.param
