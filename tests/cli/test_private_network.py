"""A run in a private network: processes outside cannot connect to it, and files belong to the same user."""

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

from callboard.cli.command import main

LISTENS = "0A"


def given_by_kernel():
    command = ["unshare", "--user", "--net", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not given_by_kernel(), reason="this kernel or container gives no namespaces")


def listening_ports(pid):
    """The ports on which somebody listens in the network of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENS}
    return found


def connects_from_here(port):
    try:
        socket.create_connection(("localhost", port), timeout=5).close()
        return True
    except ConnectionRefusedError:
        return False


def connects_from_inside(pid, port):
    script = f"import socket; socket.create_connection(('localhost', {port}), timeout=5)"
    enter = ["nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net"]
    return subprocess.run([*enter, sys.executable, "-c", script], capture_output=True).returncode == 0


def namespaces(pid):
    return [os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "net")]


@needs_namespaces
def test_connections_from_outside_fail(tmp_path):
    script = """
import os, socket, sys
from callboard.cli.private_network import enter_private_network
before = os.getuid(), os.getgid()
enter_private_network()
assert (os.getuid(), os.getgid()) == before
assert [name for _, name in socket.if_nameindex()] == ["lo"]
open(sys.argv[1], "w").close()
server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
    written = tmp_path / "written"
    with subprocess.Popen(
        [sys.executable, "-c", script, written], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline())
        assert listening_ports(process.pid) == {port}
        assert all(mine != theirs for mine, theirs in zip(namespaces("self"), namespaces(process.pid), strict=True))
        assert connects_from_inside(process.pid, port)
        assert port in listening_ports("self") or not connects_from_here(port)
        assert (written.stat().st_uid, written.stat().st_gid) == (os.getuid(), os.getgid())
        process.stdin.close()
    assert process.returncode == 0


@needs_namespaces
def test_a_kernel_that_gives_no_namespaces_is_named_in_one_line():
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    command = f"{forbid} {sys.executable} -m callboard.cli.private_network train --recipe impala-cartpole"
    run = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", command], capture_output=True, text=True)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert line.startswith("callboard: --private-network needs a user and a network namespace") and "sysctl" in line


@pytest.mark.parametrize("launcher", ["hosts", "ray"])
def test_launchers_that_must_be_reached_are_refused(launcher, capsys):
    assert main(["train", "--recipe", "impala-cartpole", "--private-network", "--launcher", launcher]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the nodes of --launcher {launcher} must be reachable from others" in line


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize(
    "launcher, private", [("processes", True), ("processes", False), ("threads", True), ("launchpad", True)]
)
def test_a_run_that_trains(train, launcher, private):
    option = ["--private-network"] if private else []
    run = train("--launcher", launcher, "--max-steps", 10_000_000, "--stop-return", 501, *option)
    run.wait_for_steps(3000)
    pid = run.process.pid
    own = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    if private:
        # All that listen there are the run's.
        listening = listening_ports(pid)
        assert all(connects_from_inside(pid, port) for port in listening)
        assert not any(connects_from_here(port) for port in listening - listening_ports("self"))
        assert all(namespaces(process.pid) == namespaces(pid) != namespaces("self") for process in own)
    else:
        connections = [connection for process in own for connection in process.connections("tcp")]
        listening = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
        assert all(connects_from_here(port) for port in listening)
        assert namespaces(pid) == namespaces("self")
    # Those of the coordinator, of replay and of the learner.
    assert len(listening) >= 3
    files = [path.stat() for path in run.run_dir.rglob("*")]
    assert {(file.st_uid, file.st_gid) for file in files} == {(os.getuid(), os.getgid())}
    run.interrupt()
    assert run.wait(timeout=30) == 128 + signal.SIGINT, run.text()
    assert re.search(r"^The run is over: stopped by SIGINT\. .*$", run.end_line())
    again = run.text().partition("\nNext:\n")[2].splitlines()[-1]
    assert ("callboard train --private-network --resume" in again) is private and "--resume" in again
    assert run.leftovers() == []


@pytest.mark.slow
@needs_namespaces
def test_a_run_that_ends_by_itself_leaves_nothing(train):
    settings = ["--max-steps", 3000, "--evaluator", "false", "--stop-return", "null"]
    run = train("--launcher", "inline", "--private-network", *settings)
    assert run.wait() == 0, run.text()
    assert run.rows()[-1]["environment_steps"] >= 3000
    assert run.leftovers() == []
