"""The base class of nodes, their place in a program, and the clients that reach them."""

import dataclasses
import pickle
import subprocess
import sys
import threading

import launchpad as lp
import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.node import (
    FixedAddress,
    Node,
    NodeClient,
    NodeContext,
    NodeHandle,
    NodeRules,
    ProgramNode,
    Unreachable,
)
from callboard.launch.processes.ports import reserve_any
from callboard.launch.run_directory.layout import RunDirectory


class Doubling(Node):
    """Serves `double`, and notes what it is requested to do until it stops after three steps."""

    served = ("double",)

    def __init__(self, context, run=None):
        super().__init__(context)
        self.calls, self.given_run = [], run

    def double(self, number):
        return 2 * number

    def setup(self):
        self.calls.append("setup")

    def step(self):
        self.calls.append("step")
        if self.calls.count("step") == 3:
            self.context.stop.set()

    def finish(self):
        self.calls.append("finish")


class Waiting(Doubling):
    """As before, but runs until it is stopped."""

    def step(self):
        self.context.stop.wait(10)


class Failing(Doubling):
    """Fails in its first step."""

    def step(self):
        raise RuntimeError("the simulator is not there")


def make_context(port=None, messages=None):
    send = (lambda kind, content: None) if messages is None else (lambda *message: messages.append(message))
    return NodeContext("own/0", "a", threading.Event(), send, port)


def test_a_node_is_set_up_steps_until_it_is_stopped_and_finishes():
    node = Doubling(make_context())
    node.run()
    assert node.calls == ["setup", "step", "step", "step", "finish"]
    assert node.context.progress.heartbeat().activity == "ending"


def test_a_node_that_fails_does_not_finish():
    node = Failing(make_context())
    with pytest.raises(RuntimeError):
        node.run()
    assert node.calls == ["setup"]


def test_a_line_for_the_user_is_a_message_to_the_launcher():
    messages = []
    make_context(messages=messages).notify("a line")
    assert messages == [("message", "a line")]


def test_a_node_serves_its_methods_and_further_ones_while_it_runs():
    reserved = reserve_any()
    node = ProgramNode("own/0", Waiting, NodeRules(stop_order=0))
    node.port_address.bind(FixedAddress(f"localhost:{reserved.port}"))
    context = make_context(reserved.port)

    def triple(number):
        return 3 * number

    thread = threading.Thread(target=node.run_node, args=(context, [triple]), daemon=True)
    thread.start()
    client = node.create_handle().client(10.0)
    assert (client.double(21), client.triple(14)) == (42, 42)
    with pytest.raises(AttributeError, match="own/0 serves no method 'halve'"):
        node.create_handle().dereference().halve(84)
    context.stop.set()
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(Unreachable):
        node.create_handle().client(0.1).double(1)
    reserved.release()


class Serving(Waiting):
    """A node whose port is that of a server of its own."""

    has_server = True


def test_a_node_with_a_server_serves_its_methods_at_another_address_if_at_all():
    reserved = reserve_any()
    methods = lp.Address("methods")
    methods.bind(FixedAddress(f"localhost:{reserved.port}"))
    node = ProgramNode("own/0", Serving, NodeRules(stop_order=0), methods_address=methods)
    assert node.addresses == [node.port_address, methods]
    node.port_address.bind(FixedAddress("localhost:1"))
    context = make_context(1)
    thread = threading.Thread(target=node.run_node, args=(context,), daemon=True)
    thread.start()
    assert node.create_handle().address() == "localhost:1"
    assert node.create_handle().client(10.0).double(21) == 42
    context.stop.set()
    thread.join(10)
    reserved.release()
    # Without that address, nothing is bound: port 1 would be refused.
    context = make_context(1)
    context.stop.set()
    ProgramNode("own/0", Serving, NodeRules(stop_order=0)).run_node(context)


def test_a_node_has_all_of_its_addresses_and_can_be_moved_to_another_directory(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    further = lp.Address("further")
    run = Run(experiment, experiment.layout(), RunDirectory(tmp_path / "before"))
    node = ProgramNode("own/0", Doubling, NodeRules(stop_order=0), [further], run=run)
    assert node.addresses == [node.port_address, further]
    node.move_to(RunDirectory(tmp_path / "after"))
    assert node.make_node(make_context()).given_run == dataclasses.replace(
        run, directory=RunDirectory(tmp_path / "after")
    )


def test_nodes_that_share_a_thread_are_called_directly_and_are_not_sent_to_other_processes():
    address = lp.Address("own")
    address.bind(FixedAddress("localhost:5"))
    handle, node = NodeHandle("own/0", address), Doubling(make_context())
    handle.bind_local(node)
    assert handle.client(5.0) is node and handle.dereference().double(2) == 4
    sent = handle.__getstate__()
    assert sent["_local"] is None and sent["name"] == "own/0"
    assert handle.address() == "localhost:5"


class MovingHandle:
    """A handle of a node that moves: clients made before do not reach it."""

    def __init__(self):
        self.place = 0

    def client(self, timeout):
        return MovingClient(self, self.place)


class MovingClient:
    def __init__(self, handle, place):
        self._handle, self._place = handle, place

    def where(self, add=0):
        if self._place != self._handle.place:
            raise Unreachable("deadline exceeded")
        return self._place + add


def test_a_client_finds_a_node_that_has_moved_after_one_failed_call():
    handle = MovingHandle()
    client = NodeClient(handle)
    assert client.where() == 0
    handle.place = 1
    with pytest.raises(Unreachable):
        client.where()
    assert client.where() == 1 and client.where(add=2) == 3


def test_a_client_is_sent_without_its_connection():
    client = NodeClient(MovingHandle())
    client.where()
    assert pickle.loads(pickle.dumps(client)).where(add=1) == 1
    with pytest.raises(AttributeError):
        client._secret  # noqa: B018


def test_another_process_can_unpickle_the_error_of_a_call():
    loads = "import pickle, sys; print(pickle.load(sys.stdin.buffer).__name__)"
    pickled = pickle.dumps(Unreachable)
    done = subprocess.run([sys.executable, "-c", loads], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().strip() == Unreachable.__name__
