"""One node of a machine fetches the weights for all; what happens when it is away, and what the learner sends."""

import contextlib
import gc
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.variables.weights import WeightClient
from callboard.data import Version
from callboard.launch.nodes.acting import weight_relay
from callboard.launch.nodes.acting.weight_fetching import CALL_SECONDS, fetch_pause, fetch_weights
from callboard.launch.nodes.acting.weight_relay import RelayedLearner, WeightRelay
from callboard.launch.nodes.acting.weight_store import WeightStore
from callboard.launch.nodes.node import NodeContext, Unreachable
from callboard.runtime.deadlines import wait_until

SIZE = 1000


class Learner:
    """A learner in this process, which counts what it sends."""

    name = "learner/0"

    def __init__(self):
        self.store, self.sent, self.calls, self.is_away = WeightStore(), 0, 0, False
        self.publish(0)

    def publish(self, step, incarnation=0):
        self.store.put(Version(incarnation, step), np.full(SIZE, step, np.float32).view(np.uint8))

    def client(self, timeout):
        return self

    def get_variables(self, have, most):
        self.calls += 1
        if self.is_away:
            time.sleep(0.01)
            raise Unreachable("it restarts")
        snapshot = self.store.get_variables(have, patience=0.1)
        self.sent += snapshot is not None
        return snapshot

    def get_part(self, version, offset, size):
        raise AssertionError


class Node:
    """A node that acts, as far as weights are concerned."""

    def __init__(self, learner, start, nodes=4):
        self.context = NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)
        self.learner = RelayedLearner(learner, start, nodes, self.context)
        self.weights = WeightClient(self.learner.client(CALL_SECONDS), [tf.Variable(tf.zeros(SIZE))])

    def fetch(self):
        return fetch_weights(self.weights, self.learner, self.context) and self.weights.take()

    @property
    def step(self):
        return None if self.weights.version is None else self.weights.version.step


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Nodes wait for the relay however busy the machine is."""
    monkeypatch.setattr(weight_relay, "_PATIENCE_SECONDS", 60.0)


@pytest.fixture
def start():
    return uuid.uuid4().hex


@pytest.fixture
def nodes(learner, start):
    made = [Node(learner, start) for _ in range(4)]
    yield made
    for node in made:
        node.context.stop.set()


def fetched_by_all(nodes, step):
    for node in nodes:
        assert wait_until(node.fetch, 20.0, 0.0) and node.step == step
    return True


def test_the_learner_sends_each_version_once_to_a_machine(learner, nodes):
    for step in range(5):
        learner.publish(step)
        assert fetched_by_all(nodes, step) and learner.sent == step + 1
        assert all(np.unique(node.weights.values[0]) == [step] for node in nodes)


def test_a_node_with_later_weights_than_the_relay_waits_for_later_ones(learner, nodes):
    relaying, ahead = nodes[:2]
    learner.publish(62)
    assert fetched_by_all([relaying, ahead], 62)
    ahead.weights.receive((0, 63), learner.store.get_variables(None)[1])
    ahead.weights._newest = (0, 63)
    assert ahead.weights.take()
    publishing = threading.Timer(0.1, learner.publish, (64,))
    publishing.start()
    assert wait_until(ahead.fetch, 20.0, 0.0) and ahead.step == 64
    publishing.join()


def test_a_learner_that_restores_a_checkpoint_sends_earlier_weights(learner, nodes):
    learner.publish(62)
    assert fetched_by_all(nodes, 62)
    learner.publish(10)
    assert fetched_by_all(nodes, 10)


def test_weights_that_arrive_are_those_of_the_learner_and_cannot_be_changed(learner, nodes):
    assert fetched_by_all(nodes, 0)
    values = nodes[1].weights.values[0]
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1.0
    nodes[1].weights.assign()
    learner.publish(7, incarnation=2)
    assert fetched_by_all(nodes, 7) and nodes[1].weights.version == Version(2, 7)
    assert not values.any(), "what a node holds stays as it was"


def test_a_learner_is_not_asked_where_no_node_wants_weights(learner, nodes):
    assert fetched_by_all(nodes, 0)
    assert wait_until(lambda: _calls_within(learner, 0.6) == 0, 20.0)


def _calls_within(learner, seconds):
    before = learner.calls
    time.sleep(seconds)
    return learner.calls - before


def test_a_node_that_comes_back_after_a_while_gets_the_newest(learner, nodes):
    """The relay holds those that the others fetched long ago."""
    assert fetched_by_all(nodes[:2], 0)
    learner.publish(1)
    assert fetched_by_all(nodes[:2], 1)
    learner.publish(2)
    time.sleep(2 * weight_relay._FRESH_SECONDS)
    assert nodes[3].fetch() and nodes[3].step == 2


def test_when_the_relay_ends_another_node_takes_its_place(learner, nodes):
    assert fetched_by_all(nodes, 0)
    nodes[0].context.stop.set()
    assert wait_until(lambda: not _is_open(nodes[0]), 20.0)
    learner.publish(1)
    assert fetched_by_all(nodes[1:], 1) and learner.sent == 2
    assert all(node.learner._connection is not None for node in nodes[1:])


def _is_open(node):
    node.learner._connection.settimeout(0.01)
    try:
        return node.learner._connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_a_learner_that_restarts_is_found_again(learner, nodes):
    assert fetched_by_all(nodes, 0)
    learner.is_away = True
    assert not nodes[2].fetch()
    learner.is_away = False
    learner.publish(0, incarnation=1)
    assert fetched_by_all(nodes, 0) and nodes[2].weights.version == Version(1, 0)


def test_a_relay_that_does_not_answer_is_passed_by(learner, start, nodes, monkeypatch):
    monkeypatch.setattr(weight_relay, "_PATIENCE_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stopped:
        stopped.bind(nodes[0].learner._address)
        stopped.listen()
        assert fetched_by_all(nodes, 0) and learner.sent == len(nodes)
        assert all(node.learner.pause == fetch_pause(4) for node in nodes)
        # Without another try, for a while.
        monkeypatch.setattr(RelayedLearner, "_connect", None)
        learner.publish(1)
        assert fetched_by_all(nodes, 1)


def test_a_relay_of_another_user_is_passed_by(learner, nodes, monkeypatch):
    def refuse(end):
        raise weight_relay.SocketError("another user")

    monkeypatch.setattr(weight_relay, "check_owner", refuse)
    assert fetched_by_all(nodes, 0) and learner.sent == len(nodes)


def test_what_a_stranger_sends_ends_only_his_connection(learner, nodes):
    assert fetched_by_all(nodes, 0)
    for request in (b"x", b"x" * 10_000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.settimeout(20.0)
            stranger.connect(nodes[0].learner._address)
            stranger.send(request)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
    learner.publish(1)
    assert fetched_by_all(nodes, 1) and learner.sent == 2


@pytest.mark.parametrize("change", ["no start", "turns"])
def test_without_a_relay_weights_come_from_the_learner(learner, start, change):
    node = Node(learner, "" if change == "no start" else start)
    if change == "turns":
        context = NodeContext("a", "a", threading.Event(), lambda *_: None, None, cooperative=True)
        node.learner = RelayedLearner(learner, start, 4, context)
        node.weights.reconnect(node.learner.client(CALL_SECONDS))
    assert node.fetch() and node.learner._connection is None and learner.sent == 1


def test_other_runs_and_other_learners_have_relays_of_their_own(learner, nodes):
    def address(name, start):
        learner.name = name
        return RelayedLearner(learner, start, 1, nodes[0].context)._address

    addresses = {address(name, start) for name in ("learner/0", "learner/red/0") for start in ("one", "other")}
    assert len(addresses) == 4 and all(one.startswith("\0") and len(one) <= 107 for one in addresses)


def test_weights_of_no_variables_arrive(learner, start):
    node = Node(learner, start)
    learner.store.put(Version(0, 1), np.zeros(0, np.uint8))
    (version, packed) = node.learner.from_relay(None)
    node.context.stop.set()
    assert version == (0, 1) and packed.size == 0


def test_memory_of_earlier_versions_is_freed(learner, nodes):
    def memories():
        links = (os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _is_link(each))
        return sum("memfd:weights" in link for link in links)

    for step in range(1, 20):
        learner.publish(step)
        assert fetched_by_all(nodes, step)
    gc.collect()
    assert memories() <= 2 * len(nodes) + 1, "Python keeps a descriptor for each mapping"
    with open("/proc/self/maps") as maps:
        assert sum("memfd:weights" in line for line in maps) <= 2 * len(nodes)


def _is_link(descriptor):
    return os.path.islink(f"/proc/self/fd/{descriptor}")


def test_a_relay_asks_in_place_of_the_nodes_of_its_machine(learner, start, monkeypatch):
    """A thousand nodes on fifty machines: fifty relays, which together send as many requests as nodes may."""
    paused = []
    monkeypatch.setattr(weight_relay, "fetch_pause", lambda nodes: paused.append(nodes) or 0.0)
    made = [Node(learner, start, nodes=1000) for _ in range(20)]
    assert fetched_by_all(made, 0)
    learner.publish(1)
    assert fetched_by_all(made, 1)
    for node in made:
        node.context.stop.set()
    # A relay of the test before may still be ending, and pauses for its own nodes.
    assert 1000 / 20 in paused


@pytest.mark.slow
def test_a_relay_that_is_killed_leaves_nothing_and_costs_only_bytes(tmp_path):
    """Processes; the learner is killed last."""
    script = [sys.executable, str(pathlib.Path(__file__).parent / "weights_over_link.py")]
    start, size = uuid.uuid4().hex, 5_000_000
    with contextlib.ExitStack() as stack:

        def begin(*arguments):
            process = stack.enter_context(subprocess.Popen([*script, *arguments], stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            return process

        serving = begin("serve", "0", str(size))
        port = serving.stdout.readline().split()[-1]
        first = begin("relay", f"127.0.0.1:{port}", str(size), start)
        assert first.stdout.readline().split()[1] == "relayed"
        others = [begin("relay", f"127.0.0.1:{port}", str(size), start) for _ in range(2)]
        for other in others:
            assert other.stdout.readline().split()[1] == "relayed"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        seen = {other: int(other.stdout.readline().split()[0]) for other in others}
        for other in others:
            for _ in range(20):
                step, how = other.stdout.readline().split()
                assert int(step) > seen[other]
                seen[other] = int(step)
            assert how == "relayed"


def test_a_relay_does_not_keep_its_socket_after_its_node(learner, start):
    node = Node(learner, start)
    assert node.fetch()
    node.context.stop.set()
    names = pathlib.Path("/proc/net/unix")
    assert wait_until(lambda: node.learner._address[1:] not in names.read_text(), 20.0)
    assert issubclass(WeightRelay, weight_relay.WeightFetcher)
