"""The run of one host: that of a cluster with a single host, and ports that it cannot have."""

import dataclasses
import pathlib
import socket

import launchpad as lp
import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
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


@pytest.mark.slow
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


class Notices:
    def __init__(self):
        self.lines = []

    def status(self, status):
        pass

    def notify(self, text):
        self.lines.append(text)


@pytest.mark.parametrize("wrong", ["first", "own"])
def test_a_name_that_cannot_be_looked_up_is_refused_before_anything_starts(wrong, program, run, cluster, monkeypatch):
    monkeypatch.setattr(host_run, "_NAME_SECONDS", 0.0)
    hosts = {"first": "127.0.0.1", "own": "127.0.0.1", wrong: "cpuu-1.invalid"}
    placement = {**cluster.placement, "learner": ["first"], "actor": ["own"]}
    wrongly = dataclasses.replace(cluster, hosts=hosts, placement=placement)
    with pytest.raises(
        CallboardError, match=f"the name 'cpuu-1.invalid' of host {wrong} cannot be looked up; correct it"
    ):
        host_run.run(program, run, Notices(), wrongly, "own")
    assert not run.directory.path.exists()


def test_another_host_may_be_known_later(cluster):
    notices = Notices()
    later = dataclasses.replace(cluster, hosts={**cluster.hosts, "late": "not-there.invalid"})
    host_run._check_names(later, "here", notices)
    (line,) = notices.lines
    assert line.startswith("the name 'not-there.invalid' of host late cannot be looked up; it can join")


def test_hosts_that_no_filter_holds_are_refused(cluster):
    many = dataclasses.replace(cluster, hosts={f"h{n}": f"10.0.{n // 250}.{n % 250}" for n in range(2080)})
    with pytest.raises(
        CallboardError, match="no room for 2080 hosts; guard the ports with a firewall and give listen="
    ):
        host_run._check_filter(many, "hosts")
    host_run._check_filter(many, "all")
