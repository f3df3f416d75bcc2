"""The messages between a supervisor and nodes that Launchpad has started."""

import os
import queue
import subprocess
import threading

import pytest

from callboard.launch.launchers.attendance import Attendance, Attendant, AttendingWorker
from callboard.launch.launchers.supervisor import Event, Exit
from callboard.launch.nodes.node import Unreachable


class Connection:
    """A handle of the coordinator whose calls fail while it is `cut`, before or after they have arrived."""

    def __init__(self, attendance):
        self._attendance = attendance
        self.cut = None

    def client(self, timeout):
        return self

    def attend(self, *arguments):
        if self.cut == "before":
            raise Unreachable
        answer = self._attendance.attend(*arguments)
        if self.cut == "after":
            raise Unreachable
        return answer


class Pair:
    """An attendant and the worker that it reports to."""

    def __init__(self):
        self.now = 0.0
        self.events = queue.SimpleQueue()
        self.worker = AttendingWorker("actor/0", self.events)
        self.attendance = Attendance({"actor/0": self.worker})
        self.connection = Connection(self.attendance)
        self.stop, self.program_stop = threading.Event(), threading.Event()
        self.attendant = Attendant("actor/0", self.connection, self.stop, self.program_stop, lambda: self.now)

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
        pair.attendant.send("message", str(number))
        pair.attendant.attend()
    assert pair.attendant.attend()
    assert pair.arrived() == [Event("actor/0", "message", str(number)) for number in range(4)]


def test_the_supervisor_stops_a_node(pair):
    pair.attendant.attend()
    assert not pair.stop.is_set()
    pair.worker.stop()
    assert pair.arrived() == []
    pair.attendant.attend()
    assert pair.stop.is_set()
    pair.attendant.send("exit", Exit(clean=True, description="ended"))
    assert pair.attendant.close()
    assert pair.arrived() == [Event("actor/0", "exit", Exit(clean=True, description="ended"))]


def test_a_node_that_has_not_begun_is_over_at_the_stop_and_ends_when_it_begins(pair):
    pair.worker.stop()
    ((_, kind, how),) = pair.arrived()
    assert kind == "exit" and how.clean
    pair.attendant.attend()
    assert pair.stop.is_set()


def test_a_node_whose_supervisor_is_gone_stops(pair):
    pair.attendant.attend()
    pair.connection.cut = "before"
    for pair.now, stopped in ((29.0, False), (31.0, True)):
        assert not pair.attendant.attend()
        assert pair.stop.is_set() == stopped
    assert not pair.attendant.close()


def test_a_node_without_a_supervisor_stops_with_the_program(pair):
    pair.program_stop.set()
    pair.attendant.attend()
    assert not pair.stop.is_set()
    pair.connection.cut = "before"
    pair.attendant.attend()
    assert pair.stop.is_set()


def test_a_supervisor_may_take_minutes_to_start(pair):
    pair.connection.cut = "before"
    for pair.now, stopped in ((599.0, False), (601.0, True)):
        pair.attendant.attend()
        assert pair.stop.is_set() == stopped


def test_a_node_that_returns_by_itself_has_failed(pair):
    pair.attendant.send("exit", Exit(clean=True, description="ended"))
    pair.attendant.close()
    ((_, _, how),) = pair.arrived()
    assert how == Exit(clean=False, description="ended before it was stopped", error="ended before it was stopped")


def test_a_process_that_was_killed_is_found_once(pair):
    process = subprocess.Popen(["sleep", "60"])
    pair.worker.attend(process.pid, 1, [])
    pair.attendance.check_processes()
    assert pair.arrived() == []
    process.kill()
    process.wait()
    for _ in range(2):
        pair.attendance.check_processes()
    ((_, kind, how),) = pair.arrived()
    assert (kind, how.clean, how.error) == ("exit", False, "its process has ended")


def test_a_worker_kills_its_process_but_not_the_supervisor_s(pair):
    process = subprocess.Popen(["sleep", "60"])
    pair.worker.attend(process.pid, 1, [])
    pair.worker.kill()
    assert process.wait(5) != 0
    assert pair.arrived()[0].content.description == "killed"
    other = AttendingWorker("actor/1", pair.events)
    other.attend(os.getpid(), 1, [])
    other.kill()
    assert pair.arrived()[0].content.description == "left behind"
