"""The process of a node: messages, the log, the stop, and how it ends."""

import uuid

import cloudpickle
import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.node_processes.forkserver import fork_process
from callboard.launch.launchers.node_processes.node_process import ChildSettings, run_child
from callboard.launch.launchers.supervision.supervisor import Exit
from callboard.launch.nodes.node import NodeRules


@pytest.fixture
def start(tmp_path):
    """Starts a node that runs a function of its context; returns the process."""

    def start_node(run):
        # Defined here, so that it is sent by value: other processes cannot import the modules of tests.
        class Own:
            name, rules, addresses = "own/0", NodeRules(stop_order=1), ()

            def run_node(self, context):
                run(context)

        settings = ChildSettings(Own(), uuid.uuid4().hex, 5, str(tmp_path / "own.log"), str(tmp_path / "tmp"))
        return fork_process(run_child, cloudpickle.dumps(settings))

    return start_node


def messages(process):
    """What the process sends until its end, except for heartbeats; and how it ended."""
    found = []
    while process.pipe.poll(60):
        kind, content = process.pipe.recv()
        if kind == "exit":
            assert process.join(10.0)
            return found, content
        if kind != "heartbeat":
            found.append((kind, content))
    raise AssertionError(found)


def test_a_node_runs_until_it_is_stopped(start, tmp_path):
    def run(context):
        print("printed by the node")
        context.notify(f"port {context.port}")
        context.stop.wait()

    process = start(run)
    while (message := process.pipe.recv())[0] == "heartbeat":
        pass
    assert message == ("message", "port 5")
    process.pipe.send("stop")
    assert messages(process) == ([], Exit(clean=True, description="ended"))
    assert process.exitcode == 0
    assert "printed by the node" in (tmp_path / "own.log").read_text()


def test_a_node_that_fails_says_why(start, tmp_path):
    def fail(context):
        raise CallboardError("no such level")

    def fail_otherwise(context):
        raise RuntimeError("the simulator is not there")

    process = start(fail)
    assert messages(process) == ([], Exit(False, "no such level", "no such level", final=True))
    assert process.exitcode == 1
    process = start(fail_otherwise)
    _, how = messages(process)
    assert (how.description, how.final) == ("RuntimeError: the simulator is not there", False)
    assert "RuntimeError: the simulator is not there" in (tmp_path / "own.log").read_text()


def test_a_node_ends_with_its_launcher(start):
    process = start(lambda context: context.stop.wait())
    while process.pipe.recv()[0] != "heartbeat":
        pass
    process.pipe.close()
    assert process.join(10.0) and process.exitcode == 1
