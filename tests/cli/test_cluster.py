"""`callboard cluster check`: its table, its JSON and its exit codes."""

import json
import os
import pathlib
import socket

import pytest
import yaml

from callboard.cli.command import main


@pytest.fixture
def write_cluster(tmp_path, monkeypatch):
    """Writes a cluster file whose hosts all have one address, and returns its path."""
    monkeypatch.setattr("callboard.launch.launchers.hosts.cluster_check._POLL_SECONDS", 0.01)

    def write(*hosts, address="127.0.0.1"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        nodes = {"learner": [hosts[0]], "replay": [hosts[0]], "actor": {hosts[0]: 1}}
        path = tmp_path / "cluster.yaml"
        content = {"hosts": dict.fromkeys(hosts, address), "ports": f"{port}-{port + 9}", **nodes}
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


def test_one_host_reaches_all_there_are(write_cluster, capsys):
    assert main(["cluster", "check", write_cluster("a"), "--host", "a", "--seconds", "0"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["from", "\\", "to", "a"], ["a", "-"]]


def test_a_host_that_is_silent_is_in_the_table_and_named_below_it(write_cluster, capsys):
    path = write_cluster("a", "b")
    assert main(["cluster", "check", path, "--host", "a", "--seconds", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["a", "-", "no"], ["b", "?", "-"]]
    assert lines[3].startswith("a cannot reach b at 127.0.0.1:") and len(lines) == 4
    assert main(["cluster", "check", path, "--host", "b", "--seconds", "0", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert list(result["reach"]) == ["b"] and len(result["problems"]) == 1


@pytest.mark.parametrize(
    "host, address, message",
    [
        ("c", "127.0.0.1", "has no host 'c'"),
        ("a", "8.8.8.8", "the host a has a public address"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(write_cluster, host, address, message, capsys):
    assert main(["cluster", "check", write_cluster("a", "b", address=address), "--host", host]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("seconds", ["-5", "nan", "inf"])
def test_seconds_must_be_a_time(seconds, write_cluster, capsys):
    assert main(["cluster", "check", write_cluster("a"), "--host", "a", f"--seconds={seconds}"]) == 2
    assert capsys.readouterr().err.startswith("callboard: --seconds must be a number")


def test_hosts_with_tunnels_are_tried_with_ssh(write_cluster, tmp_path, monkeypatch, capsys):
    path = pathlib.Path(write_cluster("a", "b"))
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, "hosts": {"a": "192.0.2.1", "b": "192.0.2.2"}, "tunnel": "ssh"}))
    ssh = tmp_path / "ssh"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for script, code, line in (
        ("exit 0", 0, "a reaches all other hosts with ssh"),
        ("echo no route >&2; exit 255", 1, "the host b cannot be reached with ssh 192.0.2.2: no route"),
    ):
        ssh.write_text(f"#!/bin/sh\n{script}\n")
        ssh.chmod(0o755)
        assert main(["cluster", "check", str(path), "--host", "a"]) == code
        assert capsys.readouterr().out == f"{line}\n"
