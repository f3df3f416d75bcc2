"""The messages between a supervisor and nodes that Launchpad has started."""

import os
import queue
import subprocess
import threading

import pytest

from callboard.launch.launchers.launchpad_supervision import LaunchpadWorker, LaunchpadWorkers, SupervisorConnection
from callboard.launch.launchers.supervision.supervisor import Event, Exit
from callboard.launch.nodes.node import Unreachable


class Connection:
    """A handle of the coordinator whose calls fail while it is `cut`, before or after they have arrived."""

    def __init__(self, workers):
        self._workers = workers
        self.cut = None

    def client(self, timeout):
        return self

    def take_messages(self, *arguments):
        if self.cut == "before":
            raise Unreachable
        answer = self._workers.take_messages(*arguments)
        if self.cut == "after":
            raise Unreachable
        return answer


class Pair:
    """A node's connection to its supervisor and the worker that it reports to."""

    def __init__(self):
        self.now = 0.0
        self.events = queue.SimpleQueue()
        self.worker = LaunchpadWorker("actor/0", self.events, lambda: self.now)
        self.workers = LaunchpadWorkers({"actor/0": self.worker})
        self.connection = Connection(self.workers)
        self.stop, self.program_stop = threading.Event(), threading.Event()
        self.own = SupervisorConnection("actor/0", self.connection, self.stop, self.program_stop, lambda: self.now)

    def arrived(self):
        found = []
        while not self.events.empty():
            found.append(self.events.get())
        return found


@pytest.fixture
def pair():
    return Pair()


def test_messages_arrive_once_and_in_order_whatever_is_lost(pair):
    for number, cut in enumerate((None, "before", "after", None)):
        pair.connection.cut = cut
        pair.own.send("message", str(number))
        pair.own.deliver()
    assert pair.own.deliver()
    assert pair.arrived() == [Event("actor/0", "message", str(number)) for number in range(4)]


def test_the_supervisor_stops_a_node(pair):
    pair.own.deliver()
    assert not pair.stop.is_set()
    pair.worker.stop()
    assert pair.arrived() == []
    pair.own.deliver()
    assert pair.stop.is_set()
    pair.own.send("exit", Exit(clean=True, description="ended"))
    assert pair.own.close()
    assert pair.arrived() == [Event("actor/0", "exit", Exit(clean=True, description="ended"))]


def test_a_node_that_begins_after_the_stop_is_told_to_end(pair):
    """Seconds pass before it reports: without a supervisor it would wait for it until Launchpad kills it."""
    pair.worker.stop()
    pair.now = 4.0
    pair.workers.check_processes()
    assert pair.arrived() == []
    pair.own.deliver()
    assert pair.stop.is_set()
    pair.now = 6.0
    pair.workers.check_processes()
    pair.own.send("exit", Exit(clean=True, description="ended"))
    assert pair.own.close()
    assert pair.arrived() == [Event("actor/0", "exit", Exit(clean=True, description="ended"))]


def test_a_node_that_does_not_begin_after_the_stop_is_over_and_ends_when_it_begins(pair):
    pair.worker.stop()
    pair.now = 6.0
    pair.workers.check_processes()
    ((_, kind, how),) = pair.arrived()
    assert kind == "exit" and how.clean
    pair.own.deliver()
    assert pair.stop.is_set()


def test_a_node_whose_supervisor_is_gone_stops(pair):
    pair.own.deliver()
    pair.connection.cut = "before"
    for pair.now, stopped in ((29.0, False), (31.0, True)):
        assert not pair.own.deliver()
        assert pair.stop.is_set() == stopped
    assert not pair.own.close()


def test_a_node_without_a_supervisor_stops_with_the_program(pair):
    pair.program_stop.set()
    pair.own.deliver()
    assert not pair.stop.is_set()
    pair.connection.cut = "before"
    pair.own.deliver()
    assert pair.stop.is_set()


def test_a_supervisor_may_take_minutes_to_start(pair):
    pair.connection.cut = "before"
    for pair.now, stopped in ((599.0, False), (601.0, True)):
        pair.own.deliver()
        assert pair.stop.is_set() == stopped


def test_a_node_that_returns_by_itself_has_failed(pair):
    pair.own.send("exit", Exit(clean=True, description="ended"))
    pair.own.close()
    ((_, _, how),) = pair.arrived()
    assert how == Exit(clean=False, description="ended before it was stopped", error="ended before it was stopped")


def test_a_process_that_was_killed_is_found_once(pair):
    process = subprocess.Popen(["sleep", "60"])
    pair.worker.take_messages(process.pid, 1, [])
    pair.workers.check_processes()
    assert pair.arrived() == []
    process.kill()
    process.wait()
    for _ in range(2):
        pair.workers.check_processes()
    ((_, kind, how),) = pair.arrived()
    assert (kind, how.clean, how.error) == ("exit", False, "its process has ended")


def test_a_worker_kills_its_process_but_not_the_supervisor_s(pair):
    process = subprocess.Popen(["sleep", "60"])
    pair.worker.take_messages(process.pid, 1, [])
    pair.worker.kill()
    assert process.wait(5) != 0
    assert pair.arrived()[0].content.description == "killed"
    other = LaunchpadWorker("actor/1", pair.events)
    other.take_messages(os.getpid(), 1, [])
    other.kill()
    assert pair.arrived()[0].content.description == "left behind"
