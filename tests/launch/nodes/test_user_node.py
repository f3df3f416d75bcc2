"""Nodes of Launchpad's own kinds under Callboard's launchers."""

import threading

import courier
import launchpad as lp
import pytest

from callboard.errors import CallboardError
from callboard.launch.nodes.node import FixedAddress, NodeContext, NodeRules, Unreachable
from callboard.launch.nodes.user_node import USER_NODE_RULES, UserNode
from callboard.launch.processes.ports import reserve_any


class Doubler:
    """Serves `double`, and runs until the program stops."""

    started = 0

    def __init__(self):
        type(self).started += 1

    def double(self, number):
        return 2 * number

    def run(self):
        lp.stop_event().wait()


@pytest.fixture
def start():
    """Runs a node in a thread; gives its context, the messages that it sends, and the thread."""
    started = []

    def start_node(node):
        messages = []
        context = NodeContext("own/0", "a", threading.Event(), lambda *message: messages.append(message), None)
        thread = threading.Thread(target=UserNode("own/0", node).run_node, args=(context,), daemon=True)
        thread.start()
        started.append((context, thread))
        return context, messages, thread

    yield start_node
    for context, thread in started:
        context.stop.set()
        thread.join(5)
        assert not thread.is_alive()


def test_a_courier_node_serves_its_methods_until_the_stop_and_starts_anew_in_every_incarnation(start):
    node = lp.CourierNode(Doubler)
    port = reserve_any()
    for address in node.addresses:
        address.bind(FixedAddress(f"localhost:{port.port}"))
    before = Doubler.started
    for incarnation in (1, 2):
        context, _, thread = start(node)
        assert courier.Client(f"localhost:{port.port}", call_timeout=10).double(21) == 42
        context.stop.set()
        thread.join(5)
        assert Doubler.started == before + incarnation
    with pytest.raises(Unreachable):
        courier.Client(f"localhost:{port.port}", call_timeout=0.1).double(21)
    port.release()


def test_a_node_that_has_done_its_work_waits_for_the_end_of_the_run(start):
    context, _, thread = start(lp.PyNode(lambda: None))
    thread.join(0.2)
    assert thread.is_alive()
    assert context.progress.heartbeat().kind == "wait"


def test_launchpad_stop_ends_the_run(start):
    _, messages, thread = start(lp.PyNode(lp.stop))
    thread.join(0.2)
    assert messages == [("stop", "own/0 has called launchpad.stop()")]


def test_the_policy_is_the_node_s_own_or_that_of_an_actor():
    node = lp.PyNode(lambda: None)
    assert UserNode("own/0", node).rules == USER_NODE_RULES
    node.rules = NodeRules(stop_order=2, restarts=0)
    assert UserNode("own/0", node).rules == node.rules


def test_nodes_that_only_launchpad_can_run_are_refused():
    with pytest.raises(CallboardError, match="own/0 is a MultiThreadingColocation, which only Launchpad's own"):
        UserNode("own/0", lp.MultiThreadingColocation([lp.PyNode(lambda: None)]))
