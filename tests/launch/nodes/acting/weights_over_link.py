"""Serves weights, or fetches them, in a process of its own.

`serve PORT BYTES`, `fetch ADDRESS BYTES`, or `relay ADDRESS BYTES START`, which does not end.
"""

import sys
import threading
import time

import courier
import numpy as np

from callboard.data import Version
from callboard.launch.nodes.acting.weight_store import WeightStore


def serve(port, size):
    store, server = WeightStore(), courier.Server(port=port or None)
    store.put(Version(0, 0), np.ones(size, np.uint8))
    server.Bind("get_variables", store.get_variables)
    server.Bind("get_part", store.get_part)
    server.Start()
    print("serves", server.port, flush=True)
    for step in range(1, 100_000):
        time.sleep(0.1)
        store.put(Version(0, step), np.ones(size, np.uint8))


class Learner:
    name = "learner/0"

    def __init__(self, address):
        self.address = address

    def client(self, timeout):
        return courier.Client(self.address, call_timeout=timeout)


def fetched(learner, size, context):
    """Yields the weights with their version whenever there are newer ones."""
    import tensorflow as tf

    from callboard.agents.variables.weights import WeightClient
    from callboard.launch.nodes.acting.weight_fetching import CALL_SECONDS, fetch_weights

    weights = WeightClient(learner.client(CALL_SECONDS), [tf.Variable(tf.zeros(size, tf.uint8))])
    while True:
        if fetch_weights(weights, learner, context) and weights.apply():
            yield weights


def context():
    from callboard.launch.nodes.node import NodeContext

    return NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)


def fetch(address, size):
    node = context()
    weights = next(fetched(Learner(address), size, node))
    assert weights.values[0].all()
    print(*node.progress.transfer, flush=True)


def relay(address, size, start):
    from callboard.launch.nodes.acting.weight_relay import RelayedLearner

    node = context()
    learner = RelayedLearner(Learner(address), start, 3, node)
    for weights in fetched(learner, size, node):
        assert weights.values[0].all()
        print(weights.version.step, "directly" if learner._connection is None else "relayed", flush=True)


if __name__ == "__main__":
    command, where, size, *rest = sys.argv[1:]
    {"serve": lambda: serve(int(where), int(size)), "fetch": lambda: fetch(where, int(size))}.get(
        command, lambda: relay(where, int(size), *rest)
    )()
