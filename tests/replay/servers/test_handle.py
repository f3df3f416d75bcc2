"""Handles of replay shards: addresses that move, incarnations, what each handle remembers, and waiting for a server."""

import threading

import numpy as np
import pytest
import reverb

from callboard.replay import ReplayHandle
from callboard.replay.servers.handle import flushed


def test_an_address_is_resolved_anew_for_every_call():
    addresses = ["a:1", "b:2"]
    replay = ReplayHandle(lambda: addresses)
    assert (replay.address(), replay.address(1)) == ("a:1", "b:2")
    addresses[1] = "c:3"
    assert replay.address(1) == "c:3"


def test_an_incarnation_changes_with_the_address_and_with_the_id():
    addresses, ids = ["a:1", "b:2"], ["first", "second"]
    replay = ReplayHandle(lambda: addresses, lambda: ids)
    assert replay.incarnation(1) == ("b:2", "second")
    before = replay.incarnation(0)
    ids[0] = "third"
    assert replay.incarnation(0) != before and replay.incarnation(1) == ("b:2", "second")
    addresses[0] = "c:3"
    assert replay.incarnation(0) == ("c:3", "third")


def test_without_ids_the_address_is_the_incarnation():
    assert ReplayHandle(lambda: ["a:1"]).incarnation(0) == ("a:1", "")


def test_every_handle_deduplicates_for_itself():
    assert ReplayHandle(lambda: ["a:1"]).received is not ReplayHandle(lambda: ["a:1"]).received


def test_a_client_reaches_its_own_shard(serve):
    replay = serve(*([reverb.Table.queue(name, 10)] for name in ("first", "second")))
    assert list(replay.client().server_info()) == ["first"]
    assert list(replay.client(1).server_info()) == ["second"]


@pytest.mark.parametrize("timeout", [0.1, 0.0005, 0.0])
def test_a_full_table_is_waited_for_as_long_as_allowed(serve, timeout):
    replay = serve([reverb.Table.queue("items", 1)])
    writer = replay.client().trajectory_writer(1)
    answers = []

    def write():
        for number in range(2):
            writer.append(np.float32(number))
            writer.create_item("items", 1.0, writer.history[-1:])
        answers.extend([flushed(writer, 10.0, 1), flushed(writer, timeout, 0)])

    # Without its own end, a thread does not stop the tests.
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(20)
    assert answers == [True, False]
    next(replay.client().sample("items"))
    assert flushed(writer, 10.0, 0)
    writer.close()
