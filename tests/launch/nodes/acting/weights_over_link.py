"""Serves weights, or fetches them, in a process of its own: `serve PORT BYTES` or `fetch ADDRESS BYTES`."""

import sys
import threading
import time

import courier
import numpy as np

from callboard.data import Version
from callboard.launch.nodes.learning.weight_store import WeightStore


def serve(port, size):
    store, server = WeightStore(), courier.Server(port=port)
    store.put(Version(0, 0), np.ones(size, np.uint8))
    server.Bind("get_variables", lambda have, most: store.get(have, 0.5, most))
    server.Bind("get_part", store.part)
    server.Start()
    print("serves", flush=True)
    for step in range(1, 100_000):
        time.sleep(0.1)
        store.put(Version(0, step), np.ones(size, np.uint8))


def fetch(address, size):
    import tensorflow as tf

    from callboard.agents.variables.weights import WeightClient
    from callboard.launch.nodes.acting.weight_fetching import CALL_SECONDS, fetch_weights
    from callboard.launch.nodes.node import NodeContext

    class Learner:
        def client(self, timeout):
            return courier.Client(address, call_timeout=timeout)

    context = NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)
    weights = WeightClient(Learner().client(CALL_SECONDS), [tf.Variable(tf.zeros(size, tf.uint8))])
    while not (fetch_weights(weights, Learner(), context) and weights.waiting):
        pass
    assert weights.apply() and weights.values[0].all()
    print(*context.progress.transfer, flush=True)


if __name__ == "__main__":
    {"serve": lambda: serve(int(sys.argv[2]), int(sys.argv[3])), "fetch": lambda: fetch(sys.argv[2], int(sys.argv[3]))}[
        sys.argv[1]
    ]()
