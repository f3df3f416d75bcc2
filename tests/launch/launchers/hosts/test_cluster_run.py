"""One command for all hosts: `ssh` stands for this machine, and a script of shell for `callboard train`."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from callboard import __version__
from callboard.errors import CallboardError
from callboard.launch.launchers.hosts import cluster_run
from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.launchers.hosts.cluster_run import host_here, run_cluster
from callboard.launch.launchers.hosts.remote_part import RemotePart

CLUSTER = Cluster(
    pathlib.Path("cluster.yaml"),
    {"a": "192.0.2.1", "b": "192.0.2.2"},
    range(20000, 20010),
    {"learner": ["a"], "replay": ["a"], "actor": ["b"], "evaluator": [], "inference": []},
)
# The host's part as it is, but for what it starts.
PART = """\
import sys
import callboard.launch.launchers.hosts.remote_part as part
part.callboard_command = lambda *arguments, before: ["bash", "do.sh", *arguments]
sys.exit(part.run_part())
"""
WAIT = "echo $$ > {pid}; trap 'echo ended by TERM; exit 143' TERM; {ready}\n"
WAIT += "while :; do sleep 0.1; done"


class Machines:
    """Where the hosts run: their commands, their output and what is left of them."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.lines = folder, []
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.command = folder / "callboard"
        (folder / "part.py").write_text(PART)
        self.write("callboard", f'[ "$*" = "cluster part" ] && exec {sys.executable} {folder}/part.py')
        self.write("ssh", 'exec bash -c "${@: -1}"')
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("TMPDIR", str(self.temporary))

    def write(self, name, script):
        (self.folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.folder / name).chmod(0o755)

    def waiting(self, host, ready="echo begun"):
        """A run that continues until it is ended."""
        return WAIT.format(pid=self.folder / f"{host}.pid", ready=ready)

    def run(self, here=None, show=None, **scripts):
        parts = {
            name: RemotePart(
                ["impala", "--host", name],
                {"cluster.yaml": "x", "modules/my_env.py": "\xe9 = 1", "do.sh": script},
                str(self.folder / "not there"),
                "cluster.yaml",
                60.0,
            )
            for name, script in scripts.items()
        }
        return run_cluster(CLUSTER, here, parts, str(self.command), show or self.lines.append)

    def left(self):
        """The processes of runs and the temporary files that are left."""
        pids = [int(path.read_text()) for path in self.folder.glob("*.pid")]
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")] + list(self.temporary.iterdir())


@pytest.fixture
def machines(tmp_path, monkeypatch):
    made = Machines(tmp_path, monkeypatch)
    yield made
    for path in tmp_path.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.slow("daily")
def test_a_run_goes_to_all_hosts_and_leaves_nothing(machines):
    script = 'ls -d modules/*; od -An -tx1 -N1 modules/my_env.py; echo "$@"; [ $4 = a ]; exit $?'
    assert machines.run(a=script, b=script.replace("exit $?", "exit 0")) == 0
    for host in ("a", "b"):
        of_host = [line.partition(" | ")[2] for line in machines.lines if line.startswith(f"{host} | ")]
        assert of_host[:2] == ["modules/my_env.py", " e9"]
        words = of_host[2].split()
        assert words[:-1] == ["train", "impala", "--host", host, "--cluster"] and words[-1].endswith("cluster.yaml")
    assert machines.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "a, b, code, line",
    [
        ("exit 1", None, 1, "b | ended by TERM"),
        (None, "sleep 0.5; exit 2", 2, "b | it has failed (exit code 2): the run ends on all hosts"),
        ("sleep 1; exit 0", "exit 130", 0, ""),
    ],
)
def test_the_end_of_a_host(machines, a, b, code, line):
    assert machines.run(a=a or machines.waiting("a"), b=b or machines.waiting("b")) == code
    assert not line or line in machines.lines
    assert machines.left() == []


@pytest.mark.slow("daily")
def test_a_signal_is_passed_on_once_to_the_first_host(machines, monkeypatch):
    """Here, nothing but this command ends the other host, after some time."""
    monkeypatch.setattr(cluster_run, "_REST_SECONDS", 5.0)
    both = set()

    def show(line):
        machines.lines.append(line)
        if line.endswith("| begun"):
            both.add(line)
            if len(both) == 2:
                threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGTERM)).start()

    assert machines.run(show=show, a=machines.waiting("a"), b=machines.waiting("b")) == 143
    assert [line for line in machines.lines if "ended" in line] == ["a | ended by TERM"]
    assert machines.left() == []


def test_nothing_outlives_a_command_that_is_killed(machines):
    """What the command does for a host when it is killed: the input of the connection ends."""
    part = RemotePart(
        ["impala"], {"cluster.yaml": "", "do.sh": machines.waiting("a")}, "/not there", "cluster.yaml", 60.0
    )
    with subprocess.Popen([machines.command, "cluster", "part"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout.readline().decode() == f"callboard cluster part {__version__}\n"
        host.stdin.write(cluster_run.encoded(part))
        host.stdin.flush()
        assert host.stdout.readline() == b"begun\n"
        host.stdin.close()
        assert host.wait(60) == 143
    assert machines.left() == []


def test_a_host_that_hears_nothing_ends_its_part(machines):
    part = RemotePart(
        ["impala"], {"cluster.yaml": "", "do.sh": machines.waiting("a")}, "/not there", "cluster.yaml", 0.5
    )
    with subprocess.Popen([machines.command, "cluster", "part"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        host.stdin.write(cluster_run.encoded(part))
        host.stdin.flush()
        assert host.wait(60) == 143
    assert machines.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, script, message",
    [
        (
            "ssh",
            "echo 'Permission denied (publickey).' >&2; exit 255",
            "the host a cannot be reached with ssh 192.0.2.1",
        ),
        ("ssh", "exit 127", "the host a has no .*callboard .*; install it with: rsync .* && ssh 192.0.2.1 make -C"),
        (
            "callboard",
            "echo callboard cluster part 0.0.1; cat",
            f"a has Callboard 0.0.1, and this machine {__version__}",
        ),
        ("callboard", "echo 'takes check' >&2; exit 2", r"a runs another version .* \(takes check\); install it with"),
    ],
)
def test_a_host_that_cannot_take_part_is_named_before_anything_starts(machines, program, script, message):
    machines.write(program, script)
    with pytest.raises(CallboardError, match=message) as raised:
        machines.run(a="exit 0", b="exit 0")
    assert "\n" not in str(raised.value) and "the host b" in raised.value.details
    assert machines.lines == [] and machines.left() == []


def test_the_host_that_is_this_machine():
    hosts = {"a": "203.0.113.91", "b": "203.0.113.92"}
    assert host_here(dataclasses.replace(CLUSTER, hosts=hosts)) is None
    hosts["b"] = "127.0.0.1"
    assert host_here(dataclasses.replace(CLUSTER, hosts=hosts)) == "b"
    assert host_here(dataclasses.replace(CLUSTER, hosts=dict.fromkeys("ab", "127.0.0.1"))) == "a"
