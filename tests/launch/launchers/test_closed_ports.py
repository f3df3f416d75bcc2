"""No port of a run accepts a connection from a machine that is not part of it, whichever process listens there.

The ports are not a list that is known beforehand: they are all on which some process of the run's machine listens.
"""

import os
import signal
import subprocess
import sys

import pytest
from host_network import HostNetwork, why_not

from callboard.launch.processes.ports import RAY_PORTS

pytestmark = pytest.mark.slow

ENDLESS = ("--max-steps", 100_000_000, "--stop-return", "null")
CLIENT = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=0.7).close()
        print(port)
    except OSError:
        pass
"""


@pytest.fixture
def network():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    network = HostNetwork(["here", "stranger"])
    yield network
    network.close()


def reached(network, from_host, to_host="here", ports=None):
    """The ports of one host that another can connect to."""
    ports = network.listening(to_host) if ports is None else ports
    command = [*network.inside(from_host), sys.executable, "-c", CLIENT, network.addresses[to_host]]
    done = subprocess.run([*command, *map(str, ports)], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(
    "options",
    [
        ("--launcher", "inline"),
        ("--launcher", "threads"),
        ("--launcher", "processes", "--inference", "central"),
        ("--launcher", "processes", "--learners", 2, "--add-nodes", "callboard.tests.launch.serving_node:add_nodes"),
        ("--launcher", "launchpad"),
        ("--launcher", "launchpad", "--add-nodes", "callboard.tests.launch.serving_node:add_nodes"),
    ],
)
def test_a_stranger_reaches_no_port_of_a_run_on_one_machine(network, tmp_path, command_run, options):
    arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS, *options]
    run = command_run(arguments, tmp_path, network.inside("here"))
    try:
        run.wait_for_steps(1, "learner_steps")
        ports = network.listening("here")
        assert len(ports) >= (1 if "inline" in options else 3)
        assert reached(network, "here") == ports
        assert reached(network, "stranger") == []
    finally:
        run.end()


def test_a_restarted_node_is_closed_too(network, tmp_path, command_run):
    arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS]
    run = command_run(arguments, tmp_path, network.inside("here"))
    try:
        run.wait_for_steps(1, "learner_steps")
        for node in ("learner/0", "replay/0", "coordinator/0"):
            os.kill(run.pid_of(node), signal.SIGKILL)
            steps = run.rows()[-1]["environment_steps"]
            run.wait_for_steps(steps + 5000)
        assert reached(network, "stranger") == []
    finally:
        run.end()


def test_all_machines_reach_a_run_that_is_open_to_them(network, tmp_path, command_run):
    arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS, "--listen", "all"]
    run = command_run(arguments, tmp_path, network.inside("here"))
    try:
        run.wait_for_steps(1, "learner_steps")
        assert reached(network, "stranger") == network.listening("here")
        assert "the ports of this run are open to all machines (listen all)" in run.text()
    finally:
        run.end()


def test_a_stranger_reaches_no_port_of_a_run_on_several_hosts(hosts):
    hosts = hosts("a", "b", "stranger")
    placed = {name: hosts.network.addresses[name] for name in ("a", "b")}
    hosts.write_cluster(hosts=placed, learner=["a"], replay=["a"], actor={"a": 1, "b": 1}, evaluator=["b"])
    for name in placed:
        hosts.start(name, *ENDLESS)
    hosts.wait_until(lambda: hosts.runs["a"].rows() and hosts.runs["a"].rows()[-1]["learner_steps"] >= 3)
    ports = hosts.network.listening("a")
    assert len(ports) >= 4
    assert reached(hosts.network, "b", "a") == ports
    assert reached(hosts.network, "stranger", "a") == []
    assert reached(hosts.network, "stranger", "b") == []


def test_a_stranger_reaches_no_port_of_the_nodes_on_ray(network, tmp_path, command_run):
    arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS]
    arguments += ["--launcher", "ray", "--ray-address", "local"]
    run = command_run(arguments, tmp_path, network.inside("here"))
    try:
        run.wait_for_steps(1, "learner_steps")
        ports = [port for port in network.listening("here") if port in RAY_PORTS]
        assert len(ports) >= 2
        assert reached(network, "stranger", ports=ports) == []
    finally:
        run.end()
