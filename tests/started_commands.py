"""Starting the real command, and looking at what it leaves behind."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import psutil
import pytest
import yaml
from agent_cases import one_fast_case
from host_network import HostNetwork, why_not

from callboard.launch.experiments.settings import read_recipe
from callboard.launch.launchers.registry import make_launcher
from callboard.runtime.deadlines import wait_until

ENVIRONMENTS = pathlib.Path(__file__).parent / "launch" / "environments"


class CommandRun:
    """A `callboard` command in a session of its own, and all processes that it ever had."""

    def __init__(
        self,
        arguments,
        directory,
        prefix=(),
        run_dir=None,
        python_path=ENVIRONMENTS,
        program=("-m", "callboard"),
    ):
        self.directory = directory
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.run_dir = run_dir or directory / "run"
        self.output = directory / "output.txt"
        # The package that is tested comes along, where it is not the one that is installed.
        python_paths = [str(python_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": os.pathsep.join(python_paths)}
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, *map(str, [*program, *arguments])],
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

    def wait(self, timeout=300.0):
        """Waits for the end, and gives the exit code."""
        self.wait_until(lambda: self.process.poll() is not None, timeout)
        return self.process.returncode

    def wait_until(self, condition, timeout=300.0):
        def holds():
            self.look()
            return condition()

        assert wait_until(holds, timeout), f"not in time; the output was:\n{self.text()}"

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

    def end_line(self):
        """The last line before the next commands."""
        lines = self.text().splitlines()
        ends = [number for number, line in enumerate(lines) if line == "Next:"]
        return lines[ends[-1] - 1 if ends else -1]

    def pid_of(self, node):
        """The process of a node in its present life."""
        log = self.run_dir / "logs" / f"{node.replace('/', '-')}.log"
        return int(re.findall(r"process (\d+)", log.read_text())[-1])

    def interrupt(self):
        """Ctrl-C, as a terminal sends it: to every process of the group."""
        self.look()
        os.killpg(self.process.pid, signal.SIGINT)

    def signal(self, number, target):
        """Sends a signal to the `launcher`, its `group`, a `node`'s group, or `all` processes, the nodes first."""
        self.look()
        if target == "all":
            for pid in [*reversed(self.seen), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        elif target == "launcher":
            os.kill(self.process.pid, number)
        else:
            os.killpg(self.process.pid if target == "group" else self.pid_of("actor/0"), number)

    def leftovers(self):
        """Processes that still run, ports on which they listen, and temporary files."""
        alive = []
        for process in self.seen.values():
            # It may end meanwhile, or become a zombie.
            with contextlib.suppress(psutil.NoSuchProcess):
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
        if "hosts" in arguments:
            given = dict(itertools.pairwise(arguments))
            actors = given.get("--actors") or (read_recipe(recipe).get("actors", 2) if recipe else 2)
            evaluators = [] if given.get("--evaluator") == "false" else ["here"]
            settings += ["--cluster", _cluster_of_this_machine(tmp_path, actors, evaluators), "--host", "here"]
        if "ray" in arguments and "--ray-address" not in arguments:
            settings += ["--ray-address", "local"]
        return start("train", *settings, "--run-dir", tmp_path / "run", *arguments)

    return start_training


@pytest.fixture
def launcher_named(tmp_path_factory):
    """Makes a launcher by name; that of hosts has one host, this machine, with as many actors as are given."""

    def make(name, actors):
        if name != "hosts":
            return make_launcher(name)
        cluster = _cluster_of_this_machine(tmp_path_factory.mktemp("cluster"), actors, ["here"])
        return make_launcher(name, {"cluster": cluster, "host": "here"})

    return make


def _cluster_of_this_machine(directory, actors, evaluators):
    """A cluster file with one host, which runs everything."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nodes = {"learner": ["here"], "replay": ["here"], "evaluator": evaluators, "actor": {"here": actors}}
    path = directory / "cluster.yaml"
    path.write_text(yaml.safe_dump({"hosts": {"here": "127.0.0.1"}, "ports": f"{port}-{port + 49}", **nodes}))
    return path


class Hosts:
    """Hosts on which `callboard train --launcher hosts` runs, with one run directory or one to each host."""

    def __init__(self, directory, names, share_directory):
        self.network = HostNetwork(names)
        self.runs = {}
        self._directory = directory
        self._share_directory = share_directory
        self.cluster = directory / "cluster.yaml"

    def write_cluster(self, **content):
        """Writes the cluster file, with ports unless they are given."""
        self.cluster.write_text(yaml.safe_dump({"hosts": self.network.addresses, "ports": "20000-20019", **content}))

    def start(self, name, *arguments, recipe="impala-cartpole", agent=None, as_host=None, python_path=ENVIRONMENTS):
        """Starts the command on a host, and gives its `CommandRun`; once more where it ran before."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        run_dir = (self._directory if self._share_directory else directory) / "run"
        command = ["train", agent] if agent else ["train", "--recipe", recipe]
        command += ["--launcher", "hosts", "--cluster", self.cluster, "--host", as_host or name, "--run-dir", run_dir]
        prefix = self.network.inside(name)
        self.runs[name] = CommandRun([*command, *arguments], directory, prefix, run_dir, python_path)
        return self.runs[name]

    def start_program(self, name, program, *arguments):
        """Starts a program on a host, with these arguments and its run directory, and gives its `CommandRun`."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        prefix = self.network.inside(name)
        self.runs[name] = CommandRun(
            [*arguments, directory / "run"], directory, prefix, directory / "run", program=(program,)
        )
        return self.runs[name]

    def start_all(self, *arguments, **settings):
        return [self.start(name, *arguments, **settings) for name in self.network.addresses]

    def wait_until(self, condition, timeout=240.0):
        """Waits, while the command continues on all hosts where it was started."""

        def ended():
            return {name: run.text() for name, run in self.runs.items() if run.process.poll() is not None}

        next(iter(self.runs.values())).wait_until(lambda: ended() or condition(), timeout)
        assert not ended(), ended()

    def power_cut(self, name):
        """Ends all that runs on a host at once; temporary files are gone too, as after a reboot."""
        self.network.power_cut(name)
        run = self.runs.pop(name)
        assert run.wait(10) == -signal.SIGKILL
        shutil.rmtree(run.temporary)

    def leftovers(self):
        """What still runs, listens or lies in temporary folders on any host."""
        found = [line for run in self.runs.values() for line in run.leftovers()]
        for name in self.network.addresses:
            found += [f"process {pid} on {name}" for pid in self.network.processes(name)]
            found += [f"port {port} of {name}" for port in self.network.listening(name)]
        return found

    def end(self):
        for run in self.runs.values():
            run.end()
        self.network.close()


@pytest.fixture
def hosts(tmp_path):
    """Makes hosts of the given names; they share one run directory, or have one each (`share_directory=False`)."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    made = []

    def make(*names, share_directory=True):
        made.append(Hosts(tmp_path, names, share_directory))
        return made[-1]

    yield make
    for network in made:
        network.end()


@pytest.fixture(scope="session", params=one_fast_case())
def case(request):
    """An `AgentCase` of every agent: what holds for one of them must hold for all."""
    return request.param
