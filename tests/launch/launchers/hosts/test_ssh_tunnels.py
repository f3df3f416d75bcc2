"""Hosts that reach each other through OpenSSH connections alone."""

import dataclasses
import os
import pathlib
import shutil
import subprocess

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.launchers.hosts.ssh_tunnels import check_tunnels, ssh_tunnels
from callboard.runtime.deadlines import wait_until

ENDLESS = ("--max-steps", 100_000_000, "--stop-return", "null")


@pytest.fixture
def cluster():
    placement = {"learner": ["a"], "replay": ["a"], "actor": ["b"], "evaluator": [], "inference": []}
    hosts = {"a": "192.0.2.1", "b": "192.0.2.2"}
    return Cluster(pathlib.Path("cluster.yaml"), hosts, range(20000, 20100), placement, tunnel="ssh")


@pytest.fixture
def program_as_ssh(tmp_path, monkeypatch):
    """Puts a shell script in the place of the command `ssh`; its log has a line for every call."""

    def write(script):
        path = tmp_path / "bin" / "ssh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
        return tmp_path / "calls"

    return write


def test_all_nodes_listen_on_the_loopback_interface(cluster):
    inside = cluster.inside_tunnels()
    assert set(inside.hosts.values()) == {"127.0.0.1"} and inside.membership_address == "127.0.0.1:20000"
    direct = dataclasses.replace(cluster, tunnel="")
    assert direct.inside_tunnels() is direct


def test_a_connection_forwards_the_ports_of_the_other_host_and_is_made_again(cluster, program_as_ssh, monkeypatch):
    monkeypatch.setattr("callboard.launch.launchers.hosts.ssh_tunnels._RETRY_SECONDS", 0.05)
    calls = program_as_ssh("echo connection refused >&2; exit 255")
    lines = []
    with ssh_tunnels(cluster, "b", {"a": [20000, 20001], "b": [20002]}, lines.append):
        assert wait_until(lambda: calls.exists() and len(calls.read_text().splitlines()) > 2, 20)
    first = calls.read_text().splitlines()[0]
    assert "-N -T -L127.0.0.1:20000:127.0.0.1:20000 -L127.0.0.1:20001:127.0.0.1:20001 192.0.2.1" in first
    assert "20002" not in first and "BatchMode=yes" in first
    assert lines == ["no SSH connection to host a (connection refused); trying again every 0 s"]


def test_the_connection_ends_with_the_run(cluster, program_as_ssh, tmp_path):
    program_as_ssh(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with ssh_tunnels(cluster, "a", {"b": [20002]}, print):
        assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 20)
        pid = int((tmp_path / "pid").read_text())
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_a_host_that_refuses_the_key_is_named_before_anything_starts(cluster, program_as_ssh):
    program_as_ssh('echo "root@192.0.2.1: Permission denied (publickey)." >&2; exit 255')
    with pytest.raises(
        CallboardError, match="the host a cannot be reached with ssh 192.0.2.1: .*Permission denied.*; set"
    ):
        check_tunnels(cluster, "b")
    program_as_ssh('echo "ssh: connect to host 192.0.2.1 port 22: No route to host" >&2; exit 255')
    check_tunnels(cluster, "b")


def test_without_openssh_one_line_says_so(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CallboardError, match="^tunnel ssh needs OpenSSH, and there is no command ssh; install it$"):
        check_tunnels(cluster, "b")


@pytest.fixture
def ssh_hosts(hosts, tmp_path, monkeypatch):
    """Hosts with an OpenSSH server each, which let in the key of the command `ssh` that is first on the path."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None:
        pytest.skip("there is no OpenSSH server")
    os.makedirs("/run/sshd", exist_ok=True)
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "server").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\nPidFile none\nUsePAM no\n"
    )
    made = hosts("a", "b", "stranger")
    key = (folder / "host.pub").read_text().rsplit(" ", 1)[0]
    (folder / "known").write_text("".join(f"{address} {key}\n" for address in made.network.addresses.values()))
    (folder / "client").write_text(
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\nUser root\n"
    )
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    servers = [
        subprocess.Popen([*made.network.inside(name), server, "-D", "-f", folder / "server"]) for name in ("a", "b")
    ]
    yield made
    for process in servers:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_without_a_key_nothing_starts(ssh_hosts, tmp_path):
    client = tmp_path / "ssh" / "client"
    client.write_text(client.read_text().replace(f"IdentityFile {tmp_path}/ssh/user\n", "IdentityFile none\n"))
    hosts = ssh_hosts
    placed = {name: hosts.network.addresses[name] for name in ("a", "b")}
    hosts.write_cluster(hosts=placed, tunnel="ssh", learner=["a"], replay=["a"], actor={"b": 1}, evaluator=["a"])
    run = hosts.start("a", *ENDLESS)
    assert run.wait(60) == 2, run.text()
    assert "the host b cannot be reached with ssh" in run.end_line() and "Permission denied" in run.end_line()
    assert len(run.text().splitlines()) == 1
    assert not run.run_dir.exists()


@pytest.mark.slow
def test_a_run_through_tunnels_is_reached_by_ssh_alone_and_survives_a_cut(ssh_hosts):
    hosts = ssh_hosts
    placed = {name: hosts.network.addresses[name] for name in ("a", "b")}
    hosts.write_cluster(hosts=placed, tunnel="ssh", learner=["a"], replay=["a"], actor={"b": 2}, evaluator=["a"])
    for name in placed:
        hosts.start(name, *ENDLESS)

    def learner_steps():
        rows = hosts.runs["a"].rows()
        return rows[-1]["learner_steps"] if rows else 0

    hosts.wait_until(lambda: learner_steps() >= 3)
    for other, name in (("b", "a"), ("a", "b"), ("stranger", "a"), ("stranger", "b")):
        assert hosts.network.reached(other, name) == [22]
    hosts.network.cut("b")
    hosts.wait_until(lambda: "no SSH connection to host b" in hosts.runs["a"].text())
    hosts.network.restore("b")
    hosts.wait_until(lambda: "the SSH connection to host b is there again" in hosts.runs["a"].text())
    before = learner_steps()
    hosts.wait_until(lambda: learner_steps() >= before + 5)
    hosts.runs["a"].interrupt()
    assert [hosts.runs[name].wait(120) for name in placed] == [130, 130]
    for name in placed:
        assert hosts.network.listening(name) == [22]
