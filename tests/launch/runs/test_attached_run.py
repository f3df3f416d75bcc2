"""Attaching to a coordinator that runs, over Courier and over a socket file."""

import contextlib
import threading

import launchpad as lp
import pytest
from untrained_runs import write_run

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.node import FixedAddress, NodeContext, NodeHandle, NodeRules, ProgramNode
from callboard.launch.nodes.reports.reporting import ReportingNode
from callboard.launch.processes.local_socket import served_at
from callboard.launch.processes.ports import reserve_any
from callboard.launch.run_directory.coordinator_address import CoordinatorAddress, write_address
from callboard.launch.runs.attached_run import AttachedRun, NotAnswering


class Reserved:
    """A port, until `close`."""

    def __init__(self):
        self._port = reserve_any()
        self.port, self.close = self._port.port, self._port.release


class Hanging(ReportingNode):
    def setup(self):
        self.begin_reports()

    def step(self):
        self.hang_in_python()

    def hang_in_python(self):
        self.context.stop.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The directory and the port of a run with a coordinator and a node that hangs, each in a thread."""
    experiment, directory = write_run(tmp_path_factory.mktemp("attached") / "run", best=False)
    stop = threading.Event()

    def context(name, port=None):
        return NodeContext(name, f"id of {name}", stop, lambda kind, content: None, port)

    with contextlib.closing(Reserved()) as reserved:
        coordinator = ProgramNode(
            "coordinator/0", Coordinator, NodeRules(1), run=Run(experiment, experiment.layout(), directory)
        )
        address = lp.Address()
        address.bind(FixedAddress(f"localhost:{reserved.port}"))
        node = Hanging(context("actor/0"), NodeHandle("coordinator/0", address))
        threads = [
            threading.Thread(target=coordinator.run_node, args=(context("coordinator/0", reserved.port),)),
            threading.Thread(target=node.run, name="actor/0"),
        ]
        for thread in threads:
            thread.start()
        while not directory.coordinator.exists() or not node.reporter.state.incarnations:
            assert all(thread.is_alive() for thread in threads)
        yield directory, reserved.port
        stop.set()
        for thread in threads:
            thread.join()
    assert not directory.coordinator.exists()
    with pytest.raises(
        NotAnswering, match=f"is not running; continue it with callboard train --resume --run-dir {directory.path}"
    ):
        AttachedRun(str(directory.path))


def test_all_nodes_are_listed_by_directory_and_by_address(running):
    directory, port = running
    for run in (str(directory.path), f"localhost:{port}"):
        assert [row["node"] for row in AttachedRun(run).overview()["table"]] == ["actor/0", "coordinator/0"]


def test_the_stacks_of_a_node_that_hangs_are_returned_through_its_reports(running):
    directory, port = running
    # The process of the node is not known yet, or is that of the coordinator, which then answers by itself.
    for _ in range(2):
        assert "self.hang_in_python()" in AttachedRun(str(directory.path)).stacks("actor/0")
    with pytest.raises(CallboardError, match="no node 'actor/1' has reported yet; did you mean 'actor/0'?"):
        AttachedRun(f"localhost:{port}").stacks("actor/1")


def test_the_command_prints_a_table_json_or_stacks(running, capsys):
    directory, _ = running
    run = str(directory.path)
    assert main(["top", run, "--once"]) == 0
    printed = capsys.readouterr().out
    assert "0 of 1,000,000 environment steps" in printed and "coordinator/0" in printed
    assert main(["top", run, "--stack", "coordinator/0"]) == 0
    assert "thread " in capsys.readouterr().out
    assert main(["top", run, "--json"]) == 0
    assert '"table": [{"node": "actor/0"' in capsys.readouterr().out


def test_another_process_that_serves_the_socket_is_not_taken_for_the_run(running, tmp_path):
    serving, port = running
    _, killed = write_run(tmp_path / "run", best=False)
    write_address(killed.coordinator, CoordinatorAddress.here(port)._replace(process=1))
    killed.socket.symlink_to(serving.socket)
    with pytest.raises(NotAnswering, match="is not running"):
        AttachedRun(str(killed.path)).overview()


def test_an_address_that_a_file_names_is_not_connected_to(running, tmp_path, monkeypatch):
    _, port = running
    _, foreign = write_run(tmp_path / "run", best=False)
    address = CoordinatorAddress.here(port)
    write_address(foreign.coordinator, address._replace(host="elsewhere", ip="127.0.0.1"))
    with pytest.raises(CallboardError, match=rf"run callboard top there, or name its address: .*127.0.0.1:{port}"):
        AttachedRun(str(foreign.path))
    write_address(foreign.coordinator, address)
    with pytest.raises(NotAnswering, match=f"cannot hold a socket; try callboard top localhost:{port}"):
        AttachedRun(str(foreign.path)).overview()


def test_a_run_in_one_thread_is_reached_by_its_socket(tmp_path):
    _, directory = write_run(tmp_path / "run", best=False)
    address = CoordinatorAddress.here(None)
    write_address(directory.coordinator, address)
    with pytest.raises(NotAnswering, match="is not running"):
        AttachedRun(str(directory.path)).overview()
    node = {"node": "actor/0", "host": address.host, "process": address.process}
    overview = {"table": [node], "coordinator": [address.host, address.process]}
    methods = {"overview": lambda: overview, "stacks": lambda node: f"stacks of {node}"}
    with served_at(directory.socket, methods):
        assert AttachedRun(str(directory.path)).stacks("actor/0") == "stacks of actor/0"
    write_address(directory.coordinator, address._replace(host="another-machine.invalid"))
    with pytest.raises(CallboardError, match="reached only on the machine of its coordinator, another-machine.invalid"):
        AttachedRun(str(directory.path))


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(CallboardError, match="there is no run in .*: it has no experiment.yaml"):
        AttachedRun(str(tmp_path))
    with pytest.raises(CallboardError, match="there is no run in ''"):
        AttachedRun("")
