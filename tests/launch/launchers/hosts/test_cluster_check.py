"""The check of which hosts reach each other, with all hosts on this machine."""

import dataclasses
import json
import socket
import threading

import pytest
import yaml

from callboard.cli.cluster import main as cluster_command
from callboard.errors import CallboardError
from callboard.launch.launchers.hosts.cluster_check import check_reach, describe_problems
from callboard.launch.launchers.hosts.cluster_file import read_cluster


@pytest.fixture
def local(tmp_path):
    """A cluster whose hosts are all this machine, with ports that are free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        begin = free.getsockname()[1]
    content = {
        "hosts": dict.fromkeys(("gpu-0", "cpu-0", "cpu-1"), "127.0.0.1"),
        "ports": f"{begin}-{begin + 2}",
        "learner": ["gpu-0"],
        "replay": ["gpu-0"],
        "actor": {"cpu-0": 1, "cpu-1": 1},
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return read_cluster(path)


def test_hosts_find_out_who_reaches_whom(local):
    views = {}

    def check(host):
        views[host] = check_reach(local, host, seconds=20)

    threads = [threading.Thread(target=check, args=(host,)) for host in local.hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everybody = {one: {other: "yes" for other in local.hosts if other != one} for one in local.hosts}
    assert views == {host: everybody for host in local.hosts}
    assert describe_problems(local, "gpu-0", everybody) == []


def test_a_host_that_cannot_be_reached_is_named(local, capsys):
    with socket.create_server(("127.0.0.1", local.ports[1])) as stranger:
        threading.Thread(target=_greet, args=(stranger,), daemon=True).start()
        assert cluster_command(["check", str(local.path), "--host", "gpu-0", "--seconds", "0", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [line.partition(" at ")[0] for line in problems] == ["gpu-0 cannot reach cpu-0", "gpu-0 cannot reach cpu-1"]
    assert "another program answers at that port" in problems[0]
    assert "the host is up, but the check does not run there" in problems[1]


def _greet(stranger, answer=b"SSH-2.0\r\n"):
    connection, _ = stranger.accept()
    with connection:
        connection.sendall(answer)


def test_a_host_whose_check_has_ended_was_reached_and_what_it_has_not_tried_is_reported(local, monkeypatch):
    monkeypatch.setattr("callboard.launch.launchers.hosts.cluster_check._POLL_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", local.ports[1])) as cpu_0:

        def answer_once():
            _greet(cpu_0, json.dumps({"callboard": "cpu-0", "reach": {"gpu-0": "yes", "cpu-1": "?"}}).encode())
            cpu_0.close()

        threading.Thread(target=answer_once, daemon=True).start()
        # Long enough to call again.
        views = check_reach(local, "gpu-0", seconds=0.3)
    assert views["gpu-0"]["cpu-0"] == "yes"
    assert [line.partition(" at ")[0] for line in describe_problems(local, "gpu-0", views)] == [
        "gpu-0 cannot reach cpu-1",
        "cpu-0 has not reported whether it reaches cpu-1",
    ]


def test_only_a_yes_for_every_pair_of_hosts_is_no_problem(local):
    everybody = {one: {other: "yes" for other in local.hosts if other != one} for one in local.hosts}
    for one, row in everybody.items():
        for other in row:
            silent = {name: {**known} for name, known in everybody.items()}
            del silent[one][other]
            expected = [f"{one} has not reported whether it reaches {other}"]
            assert describe_problems(local, "gpu-0", silent) == expected


def test_a_port_that_another_program_has_is_named_in_one_line(local):
    with socket.create_server(("", local.ports[1])):
        with pytest.raises(CallboardError, match=rf"the port {local.ports[1]} of host cpu-0 cannot be bound") as raised:
            check_reach(local, "cpu-0", seconds=0)
    assert "\n" not in str(raised.value)


def test_a_machine_that_was_started_under_the_name_of_another_is_named(local):
    all_reach = {one: {other: "yes" for other in local.hosts if other != one} for one in local.hosts}
    elsewhere = dataclasses.replace(local, hosts={**local.hosts, "cpu-1": "192.0.2.1"})
    assert describe_problems(elsewhere, "gpu-0", all_reach) == []
    assert describe_problems(elsewhere, "cpu-1", all_reach) == [
        "192.0.2.1 is not an address of this machine, which was started as cpu-1"
    ]
