"""The heartbeat reaches every shard, also after it has moved, until it is stopped."""

import socket
import threading

import pytest
import reverb

from callboard.replay import Heartbeat, ReplayHandle
from callboard.replay.servers import handle


@pytest.fixture
def stop(monkeypatch):
    """Ends the threads of the test's heartbeat; there are a hundred heartbeats in a second."""
    monkeypatch.setattr(handle, "_SECONDS", 0.01)
    event = threading.Event()
    yield event
    event.set()


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("replay-heartbeat")}


def listener():
    """A server that accepts connections and never answers."""
    server = socket.create_server(("localhost", 0))
    server.settimeout(10.0)
    return server, f"localhost:{server.getsockname()[1]}"


def test_a_shard_that_moves_is_called_at_its_new_address(serve, stop):
    replay = serve([reverb.Table.queue("queue", 10)])
    addresses = list(replay.addresses())
    called = []

    def resolve():
        called.append(addresses[0])
        return addresses

    Heartbeat(ReplayHandle(resolve), stop)
    server, address = listener()
    with server:
        addresses[0] = address
        server.accept()
    assert address in called


def test_a_shard_that_does_not_answer_is_called_again(stop):
    silent, first_address = listener()
    moved, second_address = listener()
    addresses = [first_address]
    Heartbeat(ReplayHandle(lambda: addresses), stop)
    with silent, moved:
        silent.accept()
        addresses[0] = second_address
        moved.accept()


def test_only_the_given_shards_are_called_and_threads_end_with_the_event(stop):
    replay = ReplayHandle(lambda: ["localhost:1"] * 3)
    before = threads()
    Heartbeat(replay, stop, only=[2])
    (started,) = threads() - before
    assert started.name == "replay-heartbeat-2" and started.daemon
    stop.set()
    started.join(10.0)
    assert not started.is_alive()
