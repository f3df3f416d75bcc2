"""Which requests a batch waits for.  Deadlines of a minute are those that must not be waited for."""

import threading

import pytest

from callboard.launch.batching import Batcher

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
    assert Batcher(LONG).take(timeout=0.0) == []


def test_those_who_ask_together_are_served_together():
    batcher = Batcher(LONG)
    for caller in range(3):
        batcher.submit(caller, f"request {caller}")
    assert [waiting.request for waiting in batcher.take(LONG)] == ["request 0", "request 1", "request 2"]
    assert batcher.take(timeout=0.0) == []


def test_a_batch_waits_for_a_caller_that_is_expected():
    batcher = Batcher(LONG)
    batcher.expect(0)
    batcher.expect(1)
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    assert taken.waits()
    batcher.submit(1, "b")
    assert taken() == ["a", "b"]


def test_a_batch_does_not_wait_where_no_further_request_can_come():
    batcher = Batcher(LONG)
    batcher.expect(0)
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["a"]


def test_a_batch_does_not_wait_for_a_caller_that_is_held_back():
    batcher = Batcher(LONG)
    batcher.expect(0)
    batcher.expect(1)
    batcher.submit(0, "a")
    taken = take_in_background(batcher)
    batcher.forget(1)
    assert taken() == ["a"]


@pytest.mark.parametrize("deadline", [0.0, 0.01])
def test_a_batch_waits_no_longer_than_the_deadline(deadline):
    batcher = Batcher(deadline)
    batcher.expect(1)
    batcher.submit(0, "a")
    assert take_in_background(batcher)() == ["a"]


def test_each_caller_is_given_its_own_result():
    batcher = Batcher(LONG)
    results = [batcher.submit(caller, caller) for caller in range(2)]
    for waiting in batcher.take(LONG):
        waiting.result.set_result(10 + waiting.request)
    assert [result.result(timeout=0) for result in results] == [10, 11]
