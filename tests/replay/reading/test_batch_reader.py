"""Reading in the background: waits can be interrupted, and a replaced server gets a new dataset."""

import itertools
import threading
import time

import pytest

from callboard.replay import BatchReader, ReaderStopped, raise_if_stopped
from callboard.replay.reading import batch_reader as batch_readers


def test_waiting_ends_when_the_run_stops():
    blocked = threading.Event()
    stopped = False

    def never():
        blocked.wait()
        yield 1

    reader = BatchReader(never, lambda: stopped)
    assert reader.poll(0.0) is None
    raise_if_stopped(reader)
    stopped = True
    with pytest.raises(ReaderStopped):
        next(reader)
    with pytest.raises(ReaderStopped):
        raise_if_stopped(reader)
    blocked.set()
    reader.close()


def test_waiting_ends_when_patience_does_and_a_later_batch_is_kept():
    may_continue = threading.Event()

    def late():
        may_continue.wait()
        yield 1

    reader = BatchReader(late, lambda: False, patience=0.0)
    with pytest.raises(ReaderStopped):
        next(reader)
    may_continue.set()
    assert reader.poll(10.0) == 1 and reader.seconds_waited == 0.0
    reader.close()


def test_a_replaced_server_gets_a_new_dataset():
    servers = ["first"]
    reader = BatchReader(
        lambda: ((servers[-1], number) for number in itertools.count()),
        lambda: False,
        incarnation=lambda: len(servers),
    )
    assert [next(reader) for _ in range(2)] == [("first", 0), ("first", 1)]
    servers.append("second")
    assert [next(reader) for _ in range(2)] == [("second", 0), ("second", 1)]
    reader.close()


def test_a_dataset_that_ends_is_built_again():
    """Reverb ends a dataset when its connection is restored to another table."""
    reader = BatchReader(lambda: iter([1, 2]), lambda: False)
    assert [next(reader) for _ in range(4)] == [1, 2, 1, 2]
    reader.close()


def test_an_error_of_the_dataset_is_raised_by_the_reader():
    def broken():
        yield 1
        raise RuntimeError("broken")

    reader = BatchReader(broken, lambda: False)
    assert next(reader) == 1
    with pytest.raises(RuntimeError, match="broken"):
        next(reader)


def test_at_exit_all_blocked_readers_are_waited_for_together(monkeypatch):
    monkeypatch.setattr(batch_readers, "_END_SECONDS", 0.3)
    monkeypatch.setattr(batch_readers, "_exiting", threading.Event())
    may_continue = threading.Event()

    def stuck():
        may_continue.wait()
        yield 1

    readers = [BatchReader(stuck, lambda: False) for _ in range(20)]
    begun = time.monotonic()
    batch_readers._wait_for_threads()
    assert 0.2 < time.monotonic() - begun < 3
    may_continue.set()
    assert [next(one) for one in readers] == [1] * 20
