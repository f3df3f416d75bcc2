"""Which connections of a policy server stay, by a clock of the test."""

import itertools

import pytest

from callboard.launch.serving.connections import Connection, Connections


class Http:
    """The protocol behind a connection."""

    def __getattr__(self, name):
        return lambda *arguments: None


class Transport:
    aborted = False

    def abort(self):
        self.aborted = True


class Peers:
    """Connections that can be opened, with the time."""

    def __init__(self, most=4):
        self.now = 0.0
        self.all = Connections(most, lambda: self.now)

    def open(self, host="a", has_token=False):
        assert self.all.make_room()
        peer = Connection(host, Http(), self.all)
        peer.transport, peer.has_token = Transport(), has_token
        self.all.add(peer)
        return peer

    def wait(self, seconds):
        self.now += seconds
        self.all.close_overdue()


def test_the_oldest_without_the_token_makes_room():
    peers = Peers()
    known, *strangers = peers.open(has_token=True), peers.open(), peers.open(), peers.open()
    for number, stranger in enumerate(strangers):
        peers.open(has_token=True)
        assert [one.transport.aborted for one in strangers] == [number >= other for other in range(3)], stranger
    assert not known.transport.aborted and len(peers.all) == 4
    assert not peers.all.make_room()


def test_the_address_with_most_strangers_makes_room():
    peers = Peers()
    quiet, loud = peers.open("quiet"), [peers.open("loud") for _ in range(3)]
    for _ in range(50):
        peers.open("loud")
    assert not quiet.transport.aborted and all(one.transport.aborted for one in loud)


@pytest.mark.parametrize("others, seconds", [(2, 20.0), (3, 2.0)])
def test_strangers_have_less_time_where_it_is_crowded(others, seconds):
    peers = Peers()
    for _ in range(others):
        peers.open(has_token=True)
    stranger = peers.open()
    peers.wait(seconds - 0.1)
    assert not stranger.transport.aborted
    peers.wait(0.2)
    assert stranger.transport.aborted and len(peers.all) == others


def test_a_peer_with_the_token_may_be_idle_but_not_slow():
    peers = Peers()
    idle, head, answer, unread = (peers.open(has_token=True) for _ in range(4))
    head.data_received(b"POST")
    answer.data_received(b"POST")
    answer.begin_request()
    unread.pause_writing()
    for _ in range(19):
        peers.wait(1.0)
        head.data_received(b"X: y")
    assert not any(one.transport.aborted for one in (idle, head, answer, unread))
    peers.wait(2.0)
    assert head.transport.aborted and unread.transport.aborted and not answer.transport.aborted
    peers.wait(40.0)
    assert answer.transport.aborted and not idle.transport.aborted


def test_requests_one_after_the_other_are_not_slow():
    peers = Peers()
    peer = peers.open(has_token=True)
    for _ in range(10):
        peer.data_received(b"POST")
        peers.wait(15.0)
        peer.begin_request()
        peers.wait(30.0)
        peer.end_request()
        peer.pause_writing()
        peers.wait(15.0)
        peer.resume_writing()
    assert not peer.transport.aborted and len(peers.all) == 1


def test_one_that_ends_by_itself_is_forgotten():
    peers = Peers(1)
    for _ in itertools.repeat(None, 3):
        peer = peers.open(has_token=True)
        peer.connection_lost(None)
    assert len(peers.all) == 0
