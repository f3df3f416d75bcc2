"""Commands with arguments and results that need longer than a call may take, over slow links."""

import threading
import time

import courier
import numpy as np
import pytest
from limited_link import LimitedLink

from callboard.errors import CallboardError
from callboard.launch.nodes.node import Unreachable
from callboard.launch.nodes.reports import large_contents
from callboard.launch.nodes.reports.commands import CommandQueue
from callboard.launch.nodes.reports.large_contents import PART_BYTES, LargeContents
from callboard.launch.nodes.reports.messages import Command, Reply
from callboard.launch.nodes.reports.run_control import RunControl
from callboard.launch.runs.background_run import BackgroundRun

CALL_SECONDS = 0.5
RATE = 2e6
WEIGHTS = np.arange(500_000, dtype=np.float32)
"""Two megabytes, which need twice what a call may take."""


class Node:
    """A node whose reports and their answers go over a slow link."""

    def __init__(self, port):
        self._port, self.queue, self.received, self.over = port, CommandQueue(), [], threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._thread.start()

    def _report(self):
        client, replies = self._client(), []
        while not self.over.is_set():
            replies = replies or [list(reply) for reply in self.queue.take_replies()]
            try:
                commands = client.report("learner/0", replies)
            except Unreachable:
                client = self._client()
                continue
            replies = []
            self.queue.receive([Command(*command) for command in commands])
            if self.queue.pending:
                self.queue.execute(lambda name: {"set": self.received.append, "get": lambda: WEIGHTS}[name])
            time.sleep(0.001)

    def _client(self):
        return courier.Client(f"127.0.0.1:{self._port}", call_timeout=CALL_SECONDS)

    def close(self):
        self.over.set()
        self._thread.join(10)


class Session(BackgroundRun):
    """The caller's side, without a run."""

    def __init__(self, port):
        self._port, self._client = port, None

    def _call_once(self, method, *arguments):
        if self._client is None:
            self._client = courier.Client(f"127.0.0.1:{self._port}", call_timeout=CALL_SECONDS)
        return getattr(self._client, method)(*arguments)


@pytest.fixture
def connected():
    """Control over slow links to a session and a node."""
    control = RunControl(paused=False)
    server = courier.Server()
    for method in RunControl.served:
        server.Bind(method, lambda *arguments, method=method: getattr(control, method)(*arguments))

    def report(node, replies):
        control.take_replies(node, [Reply(*reply) for reply in replies])
        return [list(command) for command in control.commands_for(node)]

    server.Bind("report", report)
    server.Start()
    links = [LimitedLink(server.port, RATE) for _ in range(2)]
    node = Node(links[1].port)
    yield Session(links[0].port), node, control
    node.close()
    for link in links:
        link.close()
    server.Stop()


def test_large_arguments_arrive(connected):
    session, node, _ = connected
    begin = time.monotonic()
    session.command(["learner/0"], "set", WEIGHTS)
    assert time.monotonic() - begin > 2 * CALL_SECONDS
    assert len(node.received) == 1 and np.array_equal(node.received[0], WEIGHTS)


def test_large_results_arrive(connected):
    session, _, control = connected
    begin = time.monotonic()
    assert np.array_equal(session.command(["learner/0"], "get")["learner/0"], WEIGHTS)
    assert time.monotonic() - begin > 2 * CALL_SECONDS
    assert not control.commands_for("learner/0") and not control._replies


def test_a_node_that_restarts_receives_all_parts_again(connected):
    session, node, control = connected
    begun, taken = threading.Event(), control.take_replies

    def take(name, replies):
        taken(name, replies)
        begun.set()

    control.take_replies = take
    command = threading.Thread(target=session.command, args=(["learner/0"], "set", WEIGHTS))
    command.start()
    assert begun.wait(10)
    node.queue = CommandQueue()
    command.join(60)
    assert len(node.received) == 1 and np.array_equal(node.received[0], WEIGHTS)


def test_a_coordinator_that_restarts_receives_what_is_missing(connected):
    session, node, control = connected
    begun, taken = threading.Event(), control.take_replies

    def take(name, replies):
        taken(name, replies)
        begun.set()

    control.take_replies = take
    command = threading.Thread(target=session.command, args=(["learner/0"], "set", WEIGHTS))
    command.start()
    assert begun.wait(10)
    for known in list(control._commands):
        control.remove_command(known)
    command.join(60)
    assert len(node.received) == 1 and np.array_equal(node.received[0], WEIGHTS)


def test_parts_that_no_caller_asks_for_are_forgotten():
    now = [0.0]
    contents = LargeContents(lambda: now[0])
    assert contents.offer("1", b"x" * PART_BYTES) == 0 and contents.offer("1", b"x" * (PART_BYTES + 1)) == 2
    now[0] = 59.0
    assert contents.give("1", 1) == b"x"
    now[0] = 118.0
    contents.keep("2", 0, b"y")
    assert contents.give("1", 0) == b"x" * PART_BYTES
    now[0] = 190.0
    assert contents.take("2", 1) == b""
    with pytest.raises(CallboardError, match=large_contents.LOST):
        contents.give("1", 0)
