"""The run of one host: that of a cluster with a single host, and ports that it cannot have."""

import pathlib
import socket

import launchpad as lp
import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.experiments.checked_run import Run
from callboard.launch.launchers.hosts import host_run
from callboard.launch.launchers.hosts.cluster_file import Cluster
from callboard.launch.run_directory.layout import RunDirectory


class Screen:
    def notify(self, text):
        pass

    status = notify


@pytest.fixture
def cluster():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    placement = {"learner": ["here"], "replay": ["here"], "actor": ["here"], "evaluator": []}
    return Cluster(pathlib.Path("cluster.yaml"), {"here": "127.0.0.1"}, range(port, port + 1), placement)


@pytest.fixture
def run(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    return Run(experiment, experiment.layout(), RunDirectory(tmp_path / "run"))


@pytest.fixture
def program():
    program = lp.Program("own")
    program.add_node(lp.PyNode(lp.stop), "own")
    return program


def test_a_run_ends_and_its_end_is_kept_for_other_hosts(program, run, cluster):
    outcome = host_run.run(program, run, Screen(), cluster, "here")
    assert (outcome.reason, outcome.exit_code) == ("own/0 has called launchpad.stop()", 0)
    assert run.directory.end_of_run() == outcome.reason
    socket.create_server(("", cluster.ports[0])).close()


def test_a_port_that_another_program_has_is_named_in_one_line(program, run, cluster, monkeypatch):
    monkeypatch.setattr(host_run, "_PORT_SECONDS", 0.0)
    with socket.create_server(("", cluster.ports[0])):
        with pytest.raises(CallboardError, match=f"the port {cluster.ports[0]} of host here cannot be bound") as raised:
            host_run.run(program, run, Screen(), cluster, "here")
    assert "\n" not in str(raised.value) and "set other ports in cluster.yaml" in str(raised.value)
    assert not run.directory.path.exists()


def test_a_port_that_another_run_has_reserved_is_refused(program, run, cluster):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        lock.bind(f"\0callboard port {cluster.ports[0]}")
        with pytest.raises(CallboardError, match=f"the port {cluster.ports[0]} of host here belongs to another run"):
            host_run.run(program, run, Screen(), cluster, "here")
    assert not run.directory.path.exists()
