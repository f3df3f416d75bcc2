"""Which requests a batch waits for.  No test waits for a deadline of a minute."""

import threading
import time

import pytest

from callboard.launch.nodes.inference.request_batcher import RequestBatcher

LONG = 60.0


def take_in_background(batcher):
    """Takes a batch in another thread; gives a function that waits for it and returns its requests."""
    taken = []
    thread = threading.Thread(target=lambda: taken.extend(batcher.next_batch(LONG)), daemon=True)
    thread.start()

    def wait():
        thread.join(timeout=20.0)
        assert not thread.is_alive(), "the batch waits"
        return [pending.request for pending in taken]

    wait.waits = thread.is_alive
    return wait


def test_without_requests_there_is_no_batch():
    assert RequestBatcher(LONG).next_batch(timeout=0.0) == []


def test_concurrent_requests_share_a_batch():
    batcher = RequestBatcher(LONG)
    for caller in range(3):
        batcher.submit(caller, f"request {caller}")
    assert [pending.request for pending in batcher.next_batch(LONG)] == ["request 0", "request 1", "request 2"]
    assert batcher.next_batch(timeout=0.0) == []


@pytest.fixture
def batcher():
    """One that has just served callers 0 and 1."""
    made = RequestBatcher(LONG)
    for caller in range(2):
        made.submit(caller, "before")
    made.next_batch(LONG)
    return made


def test_a_batch_waits_for_the_callers_of_the_last_one(batcher):
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    assert taken.waits()
    batcher.submit(1, "b")
    assert taken() == ["a", "b"]


def test_a_complete_batch_does_not_wait(batcher):
    batcher.submit(1, "b")
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["b", "a"]


def test_a_batch_does_not_wait_for_a_forgotten_caller(batcher):
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    batcher.forget(1)
    assert taken() == ["a"]


def test_a_batch_waits_no_longer_than_the_deadline():
    batcher = RequestBatcher(deadline=0.01)
    for caller in range(2):
        batcher.submit(caller, "before")
    batcher.next_batch(LONG)
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["a"]


def test_a_batch_does_not_wait_for_a_caller_that_missed_the_last_one():
    """A dead or slow caller would delay every batch."""
    batcher = RequestBatcher(deadline=0.3)
    for caller in range(2):
        batcher.submit(caller, "before")
    batcher.next_batch(LONG)
    seconds = []
    for _ in range(2):
        batcher.submit(0, "a")
        begun = time.monotonic()
        assert [pending.request for pending in batcher.next_batch(LONG)] == ["a"]
        seconds.append(time.monotonic() - begun)
    assert seconds[1] < seconds[0] / 2


def test_each_caller_receives_its_own_result():
    batcher = RequestBatcher(LONG)
    results = [batcher.submit(caller, caller) for caller in range(2)]
    for pending in batcher.next_batch(LONG):
        pending.result.set_result(10 + pending.request)
    assert [result.result(timeout=0) for result in results] == [10, 11]
