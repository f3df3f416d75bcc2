"""A node in a thread of its supervisor."""

import queue
import threading

import pytest

from callboard.errors import CallboardError
from callboard.launch.launchers.supervision.supervisor import Exit
from callboard.launch.launchers.threads import ThreadWorker


class Worker:
    """A worker, and the events that it sends except for heartbeats."""

    def __init__(self, run_node, port=None):
        self._events = queue.SimpleQueue()
        self.worker = ThreadWorker("actor/0", run_node, port, self._events)

    def next_event(self):
        while (event := self._events.get(timeout=10)).kind == "heartbeat":
            pass
        assert event.node == "actor/0"
        return event.kind, event.content


def test_a_node_runs_until_it_is_stopped():
    def run(context):
        assert (context.name, context.port, context.one_process) == ("actor/0", 5, True)
        context.notify("ready")
        context.stop.wait()

    worker = Worker(run, port=5)
    worker.worker.start()
    assert worker.next_event() == ("message", "ready")
    worker.worker.stop()
    assert worker.next_event() == ("exit", Exit(clean=True, description="ended"))


@pytest.mark.parametrize(
    "error, description, final",
    [(CallboardError("no such level"), "no such level", True), (OSError("no camera"), "OSError: no camera", False)],
)
def test_a_node_that_fails_says_why_and_its_threads_are_stopped(error, description, final):
    contexts = []

    def run(context):
        contexts.append(context)
        raise error

    worker = Worker(run)
    worker.worker.start()
    kind, how = worker.next_event()
    assert (kind, how.clean, how.description, how.final) == ("exit", False, description, final)
    assert contexts[0].stop.is_set()


def test_a_node_that_does_not_end_is_left_behind():
    release, stopped = threading.Event(), []

    def run(context):
        release.wait(10)
        stopped.append(context.stop.is_set())

    worker = Worker(run)
    worker.worker.start()
    worker.worker.kill()
    assert worker.next_event() == ("exit", Exit(clean=False, description="left behind in its thread"))
    release.set()
    worker.next_event()
    assert stopped == [True]


def test_every_incarnation_has_an_id_of_its_own():
    ids = []
    for _ in range(2):
        worker = Worker(lambda context: ids.append(context.incarnation_id))
        worker.worker.start()
        worker.next_event()
    assert len(set(ids)) == 2
