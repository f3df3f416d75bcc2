"""A policy server whose policy is arithmetic, in this process: over real HTTP, without TensorFlow."""

import contextlib
import socket
import threading

import numpy as np
import tree
from gymnasium import spaces

from callboard.agents.policies.batched_policy import InferenceResult
from callboard.data import Version
from callboard.environments.batches import encoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.launch.nodes.inference.episode_server import EpisodeServer
from callboard.launch.nodes.inference.http_door import HttpDoor
from callboard.launch.nodes.inference.places import Place, PlacePool
from callboard.launch.serving.server_address import ServerAddress
from callboard.launch.serving.wire_format import WireFormat

TOKEN = "a-token-for-the-tests"
OBSERVATION = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 3, 1), np.uint8),
        "speed": spaces.Box(-10, 10, (2,), np.float64),
        "gear": spaces.Discrete(4, start=1),
    }
)
ACTION = spaces.Dict({"turn": spaces.Discrete(3, start=1), "force": spaces.Box(-1, 1, (2,), np.float32)})
FIRST = {"image": np.arange(6, dtype=np.uint8).reshape(2, 3, 1), "speed": [0.5, -2.0], "gear": 3}


class Door:
    """The server, with what its policy was shown."""

    def __init__(self, port, places, refusal, tls, observation):
        self.seen = []
        spec = encoding.EnvironmentEncoding(observation_encoding(observation), action_encoding(ACTION)).spec()
        self.episodes = EpisodeServer(PlacePool(self._place, places), self._infer, lambda: Version(0, 5), silence=60.0)
        address = ServerAddress("127.0.0.1", port)
        self.url = address.url(tls is not None)
        wire = WireFormat(spec)
        self.most_bytes = wire.most_bytes
        self.door = HttpDoor(self.episodes, wire, address, TOKEN, tls, places, refusal)

    def _place(self, index):
        return Place(index, (), 0)

    def _infer(self, requests):
        results = []
        for request in requests:
            observation = request.timestep.observation
            self.seen.append(tree.map_structure(np.array, request.timestep))
            turn = observation["gear"] % 3
            results.append(InferenceResult({"turn": turn, "force": observation["speed"] / 10}, (), ()))
        return results


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def opened(places=4, refusal="", tls=None, answers=True, observation=OBSERVATION):
    """Yields a server that is open."""
    served, over = Door(free_port(), places, refusal, tls, observation), threading.Event()

    def serve():
        while not over.is_set():
            served.episodes.serve_once()

    thread = threading.Thread(target=serve, daemon=True)
    if answers:
        thread.start()
    served.door.start()
    try:
        yield served
    finally:
        served.door.close()
        over.set()
        if answers:
            thread.join()
        served.episodes.close()
