"""Which requests a batch waits for.  Deadlines of a minute are those that must not be waited for."""

import threading
import time

import pytest

from callboard.launch.nodes.request_batcher import RequestBatcher

LONG = 60.0


def take_in_background(batcher):
    """Takes a batch in another thread; gives a function that waits for it and returns its requests."""
    taken = []
    thread = threading.Thread(target=lambda: taken.extend(batcher.take(LONG)), daemon=True)
    thread.start()

    def wait():
        thread.join(timeout=20.0)
        assert not thread.is_alive(), "the batch waits"
        return [waiting.request for waiting in taken]

    wait.waits = thread.is_alive
    return wait


def test_nobody_asks():
    assert RequestBatcher(LONG).take(timeout=0.0) == []


def test_those_who_ask_together_are_served_together():
    batcher = RequestBatcher(LONG)
    for caller in range(3):
        batcher.submit(caller, f"request {caller}")
    assert [waiting.request for waiting in batcher.take(LONG)] == ["request 0", "request 1", "request 2"]
    assert batcher.take(timeout=0.0) == []


@pytest.fixture
def batcher():
    """One that has just served callers 0 and 1."""
    made = RequestBatcher(LONG)
    for caller in range(2):
        made.submit(caller, "before")
    made.take(LONG)
    return made


def test_a_batch_waits_for_those_that_were_in_the_last(batcher):
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    assert taken.waits()
    batcher.submit(1, "b")
    assert taken() == ["a", "b"]


def test_a_batch_does_not_wait_where_no_further_request_can_come(batcher):
    batcher.submit(1, "b")
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["b", "a"]


def test_a_batch_does_not_wait_for_a_caller_that_is_held_back(batcher):
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    batcher.forget(1)
    assert taken() == ["a"]


def test_a_batch_waits_no_longer_than_the_deadline():
    batcher = RequestBatcher(deadline=0.01)
    for caller in range(2):
        batcher.submit(caller, "before")
    batcher.take(LONG)
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["a"]


def test_a_caller_that_has_missed_a_batch_is_not_waited_for():
    """One that is dead or slow would hold up every batch."""
    batcher = RequestBatcher(deadline=0.3)
    for caller in range(2):
        batcher.submit(caller, "before")
    batcher.take(LONG)
    seconds = []
    for _ in range(2):
        batcher.submit(0, "a")
        begun = time.monotonic()
        assert [waiting.request for waiting in batcher.take(LONG)] == ["a"]
        seconds.append(time.monotonic() - begun)
    assert seconds[1] < seconds[0] / 2


def test_each_caller_is_given_its_own_result():
    batcher = RequestBatcher(LONG)
    results = [batcher.submit(caller, caller) for caller in range(2)]
    for waiting in batcher.take(LONG):
        waiting.result.set_result(10 + waiting.request)
    assert [result.result(timeout=0) for result in results] == [10, 11]
