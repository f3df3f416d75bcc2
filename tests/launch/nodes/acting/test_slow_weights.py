"""Weights over a link that needs longer for all of them than a call may take."""

import contextlib
import functools
import itertools
import pathlib
import shutil
import subprocess
import sys
import threading

import courier
import numpy as np
import pytest
import tensorflow as tf
from host_network import HostNetwork, why_not
from limited_link import LimitedLink

from callboard.agents.variables import array_parts
from callboard.agents.variables.weights import WeightClient
from callboard.data import Version
from callboard.launch.nodes.acting import weight_fetching
from callboard.launch.nodes.acting.weight_fetching import fetch_weights
from callboard.launch.nodes.acting.weight_store import WeightStore
from callboard.launch.nodes.node import NodeContext

CALL_SECONDS = 0.5


class Handle:
    """A learner behind Courier."""

    name = "learner/0"

    def __init__(self, port):
        self.port = port

    def client(self, timeout):
        return courier.Client(f"127.0.0.1:{self.port}", call_timeout=timeout)


class Learner:
    """Serves weights, and publishes newer ones whenever it is called."""

    def __init__(self, count):
        self.store, self.calls, self._steps = WeightStore(), [], itertools.count()
        self.count = count
        self.server = courier.Server()
        self.server.Bind(
            "get_variables", functools.partial(self.call, lambda have, most: self.store.get_variables(have, most, 0))
        )
        self.server.Bind("get_part", functools.partial(self.call, self.store.get_part))
        self.publish()
        self.server.Start()

    def publish(self):
        step = next(self._steps)
        self.store.put(Version(0, step), np.full(self.count, step, np.float32).view(np.uint8))

    def call(self, method, *arguments):
        self.calls.append(method)
        self.publish()
        return method(*arguments)


def context():
    return NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)


def client_of(learner, port):
    handle = Handle(port)
    return WeightClient(handle.client(CALL_SECONDS), [tf.Variable(tf.zeros(learner.count))]), handle


@pytest.fixture
def served(monkeypatch, request):
    monkeypatch.setattr(weight_fetching, "CALL_SECONDS", CALL_SECONDS)
    monkeypatch.setattr(array_parts, "_QUICK_SECONDS", CALL_SECONDS / 10)
    learner = Learner(request.param)
    links = []

    def link(rate):
        links.append(LimitedLink(learner.server.port, rate))
        return links[-1]

    yield learner, link
    for one in links:
        one.close()
    learner.server.Stop()


def fetch_until_here(weights, handle, node, most=40):
    return next(tries for tries in range(1, most) if fetch_weights(weights, handle, node) and weights.waiting)


@pytest.mark.parametrize("served", [1_000_000], indirect=True)
def test_weights_arrive_over_a_link_that_needs_many_calls_for_them(served):
    """4 MB need 2 s: four times what a call may take.  Newer versions come meanwhile."""
    learner, link = served
    slow, node = link(2e6), context()
    weights, handle = client_of(learner, slow.port)
    fetch_until_here(weights, handle, node)
    first = weights._newest[1]
    assert weights.apply() and weights.values[0].tolist() == [float(first)] * learner.count
    assert first < 4, "a newer version begins no transfer anew"
    assert slow.sent < 3 * 4e6, "what has arrived is not sent again"
    total, seconds = node.progress.transfer
    assert total == 4e6 and seconds > CALL_SECONDS


@pytest.mark.parametrize("served", [1_000_000], indirect=True)
def test_a_transfer_that_is_cut_continues_where_it_was(served):
    learner, link = served
    slow, node = link(2e7), context()
    weights, handle = client_of(learner, slow.port)
    received = []

    def cut_once():
        received.append(weights.parts._received)
        if len(received) == 1:
            slow.cut()
        return True

    with contextlib.suppress(weight_fetching.Unreachable):
        weights.fetch(cut_once)
    if not weights.waiting:
        weights.reconnect(handle.client(CALL_SECONDS))
        fetch_until_here(weights, handle, node)
    assert weights.apply() and weights.version.step < 3
    assert len(received) and received[0] >= 1 << 20 and slow.sent < 4e6 + (1 << 21)


@pytest.mark.parametrize("served", [1000], indirect=True)
def test_small_weights_take_one_call(served):
    learner, link = served
    weights, handle = client_of(learner, learner.server.port)
    assert fetch_weights(weights, handle, context()) and weights.apply()
    assert len(learner.calls) == 1


@pytest.mark.parametrize("served", [25_000], indirect=True)
def test_small_weights_come_in_parts_over_a_very_slow_link(served):
    learner, link = served
    weights, handle = client_of(learner, link(1e5).port)
    fetch_until_here(weights, handle, context())
    assert weights.apply()


@pytest.mark.parametrize("served", [300_000], indirect=True)
def test_several_nodes_share_a_slow_link(served):
    learner, link = served
    slow = link(4e6)
    fetched = []

    def fetch():
        weights, handle = client_of(learner, slow.port)
        fetch_until_here(weights, handle, context())
        fetched.append(weights.apply())

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert fetched == [True] * 4


@pytest.mark.parametrize("served", [1_000_000], indirect=True)
def test_a_stop_ends_a_transfer(served):
    learner, link = served
    weights, handle = client_of(learner, link(2e6).port)
    node = context()
    node.stop.set()
    for _ in range(2):
        fetch_weights(weights, handle, node)
    assert not weights.waiting


@pytest.mark.slow
def test_34_mb_arrive_over_a_link_of_40_mbit_per_second():
    """They need 6.8 s, and a call may take 5 s."""
    if missing := why_not() or ("" if shutil.which("tc") else "there is no command `tc`"):
        pytest.skip(missing)
    network, size = HostNetwork(["learner", "actor"]), 34_000_000
    script = [sys.executable, str(pathlib.Path(__file__).parent / "weights_over_link.py")]
    try:
        limit = [
            "tc",
            "qdisc",
            "add",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            "40mbit",
            "burst",
            "32kbit",
            "latency",
            "400ms",
        ]
        limited = subprocess.run([*network.inside("learner"), *limit], capture_output=True, text=True)
        if limited.returncode:
            pytest.skip(f"no limited links here: {limited.stderr.strip()}")
        serve = [*network.inside("learner"), *script, "serve", "20000", str(size)]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as learner:
            try:
                assert learner.stdout.readline().startswith("serves")
                fetch = [*network.inside("actor"), *script, "fetch", f"{network.addresses['learner']}:20000", str(size)]
                fetched = subprocess.run(fetch, capture_output=True, text=True, timeout=120)
                assert fetched.returncode == 0, fetched.stderr
            finally:
                learner.kill()
        total, seconds = map(float, fetched.stdout.split())
        assert total == size and 6.0 < seconds < 60.0
    finally:
        network.close()
