"""Plain data of workers."""

import json
import os
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.workers.exchange import Channel, Exchange, for_json, space_description
from callboard.environments.workers.plain_values import described_space, listed, restored
from callboard.errors import CallboardError

SPACES = [
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(np.array([-1, 0], np.float32), np.array([0.1, np.inf], np.float32)),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])),
    spaces.MultiBinary((2, 2)),
    spaces.Dict(
        {"b": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1)]), "a": spaces.Dict({"c": spaces.Discrete(3)})}
    ),
]


@pytest.mark.parametrize("space", SPACES)
def test_spaces_are_described_as_json(space):
    assert described_space(json.loads(json.dumps(space_description(space)))) == space


def test_other_spaces_are_refused():
    with pytest.raises(CallboardError, match="^the observation space Text is not supported: Box"):
        described_space(space_description(spaces.Dict({"words": spaces.Text(5)})))


def test_values_return_as_they_were():
    value = {
        "a": (1, [2.5, None, True]),
        3: np.array([[1, 2]], np.int16),
        "c": np.array(["x", "yz"]),
        "n": float("inf"),
    }
    found = restored(json.loads(json.dumps(for_json(value))))
    assert found.keys() == value.keys() and found["a"] == value["a"] and found["n"] == value["n"]
    for key in (3, "c"):
        assert found[key].dtype == value[key].dtype
        np.testing.assert_array_equal(found[key], value[key])
    assert for_json(np.float32(0.5)) == 0.5 and for_json(object()).startswith("<object")
    assert listed({"a": np.arange(2), "b": (np.int64(3),)}) == {"a": [0, 1], "b": [3]}


def test_the_layout_is_the_same_on_both_sides():
    space = space_description(SPACES[-1])
    one, other = (
        Exchange(3, space, space_description(gymnasium.spaces.Discrete(4))),
        Exchange(3, space, {"kind": "Text"}),
    )
    assert one.size > other.size > 0 and one.size % 64 == 0


def test_messages_come_whole_soon_or_late_and_what_is_late_is_waited_for_asleep():
    reads, writes = os.pipe()
    channel = Channel(reads, writes)
    for delay in (0.0, 0.2, 0.0, 0.2):
        sender = threading.Timer(delay, channel.send, ({"delay": delay}, b"x" * 1000))
        sender.start()
        begun = time.thread_time()
        assert channel.receive() == ({"delay": delay}, b"x" * 1000)
        assert time.thread_time() - begun < 0.05
        sender.join()
    os.close(writes)
    with pytest.raises(EOFError):
        channel.receive()
