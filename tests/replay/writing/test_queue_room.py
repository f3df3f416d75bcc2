"""When an actor looks whether a queue has room, and what it waits for."""

from types import SimpleNamespace

import pytest
import reverb

from callboard.replay.writing import queue_room
from callboard.replay.writing.queue_room import QueueRoom


class Queue:
    """A client of a queue with one place, and a writer to it."""

    def __init__(self):
        self.pending, self.size, self.looks, self.is_away = 0, 0, 0, None
        self.limiter = SimpleNamespace(max_diff=1)

    def server_info(self, timeout):
        self.looks += 1
        if self.is_away:
            raise self.is_away
        return {"queue": SimpleNamespace(current_size=self.size, max_size=1, rate_limiter_info=self.limiter)}

    def flush(self, pending, milliseconds):
        if self.pending > pending:
            raise reverb.errors.DeadlineExceededError


@pytest.fixture
def queue(monkeypatch):
    monkeypatch.setattr(queue_room, "_PROMPT_SECONDS", 1.0)
    return Queue()


def test_no_actor_looks_at_a_queue_that_takes_items_at_once(queue):
    room, queue.pending, queue.size = QueueRoom(queue, "queue"), 1, 1
    assert all(room.wait(queue, 0.1) for _ in range(20)) and queue.looks == 0
    assert not room.take_was_full()


def test_once_it_is_full_an_actor_looks_for_room_until_ten_were_taken_at_once(queue):
    room, queue.pending, queue.size = QueueRoom(queue, "queue"), 2, 1
    assert not room.wait(queue, 0.01) and queue.looks == 1
    queue.pending = 0
    assert not room.wait(queue, 0.01) and queue.looks > 1
    assert room.take_was_full() and not room.take_was_full()
    queue.size, queue.looks = 0, 0
    assert all(room.wait(queue, 0.1) for _ in range(9)) and queue.looks == 9
    queue.pending = 1
    assert not room.wait(queue, 0.01), "one on its way is one too many"
    queue.pending, queue.looks = 0, 0
    assert all(room.wait(queue, 0.1) for _ in range(30)) and queue.looks == 1


def test_items_that_are_sent_slowly_do_not_fill_a_queue(queue):
    room, queue.pending = QueueRoom(queue, "queue"), 2
    assert not room.wait(queue, 0.01) and queue.looks == 1
    queue.pending, queue.looks = 1, 0
    assert room.wait(queue, 0.01) and queue.looks == 0 and not room.take_was_full()


@pytest.mark.parametrize("error", [reverb.errors.DeadlineExceededError(), RuntimeError("Socket closed")])
def test_a_server_that_is_away_has_no_room(queue, error):
    room, queue.pending, queue.size = QueueRoom(queue, "queue"), 2, 1
    assert not room.wait(queue, 0.01)
    queue.pending, queue.size, queue.is_away = 0, 0, error
    assert not room.wait(queue, 0.01) and queue.looks > 0
    queue.is_away = None
    assert room.wait(queue, 0.1)


def test_a_table_that_replaces_its_oldest_items_has_room(queue):
    room, queue.pending, queue.size = QueueRoom(queue, "queue"), 2, 1
    assert not room.wait(queue, 0.01)
    queue.pending = 0
    assert not room.wait(queue, 0.01)
    queue.limiter.max_diff = 1e300
    assert room.wait(queue, 0.1)


class SimulatedTime:
    """A clock that only sleeping moves, and a queue that has room at some times."""

    def __init__(self, queue):
        self.now, self.queue, self.room_at = 0.0, queue, 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.queue.size = 0 if self.now >= self.room_at else 1


@pytest.mark.parametrize("seconds", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("timeout", [0.5, 10.0])
def test_looks_in_a_wait_are_few_and_the_last_is_not_late(queue, monkeypatch, seconds, timeout):
    clock = SimulatedTime(queue)
    monkeypatch.setattr(queue_room, "time", clock)
    room, queue.pending, queue.size = QueueRoom(queue, "queue"), 2, 1
    assert not room.wait(queue, timeout)
    queue.pending = 0
    looks, late = [], []
    for _ in range(5):
        clock.room_at, queue.looks = clock.now + seconds, 0
        queue.size = 1
        while not room.wait(queue, timeout):
            pass
        looks.append(queue.looks)
        late.append(clock.now - clock.room_at)
    assert max(looks[1:]) <= max(5, 2 + seconds / 0.25), looks
    assert max(late) <= seconds / 2, late
