"""Handles of replay shards: addresses that move, incarnations, and what each handle remembers."""

import reverb

from callboard.replay import ReplayHandle


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
