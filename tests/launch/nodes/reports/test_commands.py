"""Commands that a node has received: each is executed once, and its result is reported once."""

import sys
import threading

import cloudpickle
import pytest

from callboard.errors import CallboardError
from callboard.launch.nodes.reports.commands import CommandQueue
from callboard.launch.nodes.reports.messages import Command


def command(name, *arguments, **named):
    return Command(f"id of {name}", name, cloudpickle.dumps((arguments, named)))


@pytest.fixture
def queue():
    return CommandQueue()


def methods(name):
    def fail():
        raise ValueError("broken\nin two lines")

    def refuse():
        raise CallboardError("this cannot be done")

    methods = {"fail": fail, "refuse": refuse, "leave": lambda: sys.exit(3), "end": lambda: next(end)}
    end = (Unprintable.raised() for _ in range(1))
    return {"add": lambda left, right=1: left + right, **methods}[name]


class Unprintable(BaseException):
    def __str__(self):
        raise RuntimeError

    @classmethod
    def raised(cls):
        raise cls


def test_a_command_that_arrives_again_is_executed_once(queue):
    queue.receive([command("add", 2, right=3)])
    queue.receive([command("add", 2, right=3)])
    queue.execute(methods)
    queue.receive([command("add", 2, right=3)])
    queue.execute(methods)
    (reply,) = queue.take_replies()
    assert (reply.id, reply.error, cloudpickle.loads(reply.result)) == ("id of add", "", 5)
    assert queue.take_replies() == []


def test_errors_become_lines_and_their_tracebacks_are_logged(queue, caplog):
    queue.receive([command("fail"), command("refuse")])
    with caplog.at_level("INFO"):
        queue.execute(methods)
    failed, refused = queue.take_replies()
    assert (failed.error, refused.error) == ("ValueError: broken", "this cannot be done")
    assert "Traceback" in caplog.text and "in two lines" in caplog.text


def test_functions_that_leave_are_answered(queue):
    queue.receive([command("leave"), command("end"), command("add", 2)])
    queue.execute(methods)
    left, ended, added = queue.take_replies()
    assert left.error == "SystemExit: 3" and ended.error.startswith("Unprintable: its message cannot be shown")
    assert cloudpickle.loads(added.result) == 3


def test_stacks_are_returned_at_once_also_where_the_main_loop_hangs(queue):
    stuck = threading.Event()

    def hang_in_python():
        stuck.wait()

    thread = threading.Thread(target=hang_in_python, name="actor/0")
    thread.start()
    try:
        assert queue.receive([command("stacks", "actor/0")]) and not queue.pending
        (reply,) = queue.take_replies()
        text = cloudpickle.loads(reply.result)
        assert text.startswith("thread actor/0:\n") and "stuck.wait()" in text
        assert "thread MainThread:" not in text  # The calling thread is left out.
        assert not queue.receive([command("stacks", "actor/0")])
    finally:
        stuck.set()
        thread.join()
