"""Plain data of workers."""

import collections
import enum
import os
import threading
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.workers.exchange import (
    Channel,
    Exchange,
    dumped,
    loaded,
    refuse,
    space_description,
    text_of,
)
from callboard.environments.workers.worker_batch import described_space
from callboard.errors import CallboardError

SPACES: list[Any] = [
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(np.array([-1, 0], np.float32), np.array([0.1, np.inf], np.float32)),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-1, 1, (0, 3), np.float32),
    spaces.Dict({("a", 1): spaces.Discrete(2), ("b", 2): spaces.Discrete(3)}),  # type: ignore[dict-item]
    spaces.Dict(
        {"b": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1)]), "a": spaces.Dict({"c": spaces.Discrete(3)})}
    ),
]


@pytest.mark.parametrize("space", SPACES)
def test_spaces_are_described_as_json(space):
    assert repr(described_space(loaded(dumped(space_description(space), refuse)))) == repr(space)


def test_bounds_of_large_observations_are_sent_as_bytes():
    low = np.linspace(-1, 0, 100_000, dtype=np.float32)
    described = space_description(spaces.Box(low, np.ones_like(low)))
    assert len(dumped(described, refuse)) < 1.5 * low.nbytes
    np.testing.assert_array_equal(described_space(described).low, low)


def test_other_spaces_are_refused():
    with pytest.raises(CallboardError, match="^the observation space Text at 'words' is not supported: Box"):
        described_space(space_description(spaces.Dict({"words": spaces.Text(5)})))


@pytest.mark.parametrize(
    "value",
    [
        {"a": (1, [2.5, None, True]), 3: "c", (1, 2): {}, None: float("inf")},
        {"array": [1], "items": [2], "_array": 3},
        pytest.param(10**5000, id="large"),
        b"ab\xff",
        np.longdouble(1.5),
        np.complex64(1j),
        np.datetime64("2020-01-01"),
        np.array([[1, 2]], np.int16),
        np.array(["x", "yz"]),
        np.array([b"abc", b"d"]),
        np.array([1, "a", None, [2]], object),
        np.array(None, object),
        np.array("2020-01-01", "M8[D]"),
        np.zeros((0, 3), np.float32),
        np.zeros((2, 0), ">f4"),
    ],
)
def test_values_return_as_they_were(value):
    found = loaded(dumped(value, refuse))
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype and found.shape == value.shape and found.flags.writeable
        np.testing.assert_array_equal(found, value)
    else:
        assert found == value


def test_numbers_are_those_of_python_and_what_is_no_plain_data_is_a_text():
    class Unshown:
        def __repr__(self):
            raise RuntimeError

    inside = {"x": 1}
    inside["self"] = inside
    value = {"one": np.float32(0.5), "object": object(), "unshown": Unshown(), "inside": inside, "set": {1}}
    found = loaded(dumped({**value, "masked": np.ma.masked_array([1, 2], [0, 1])}, text_of))
    assert found["one"] == 0.5 and type(found["one"]) is float and found["object"].startswith("<object")
    assert "cannot be shown" in found["unshown"] and found["inside"]["self"] == repr(inside) and found["set"] == "{1}"
    assert found["masked"].startswith("masked_array")
    with pytest.raises(TypeError, match="<object .* is of type object"):
        dumped([object()], refuse)


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
        sender = threading.Timer(delay, channel.write, (channel.encoded({"delay": delay}, b"x" * 1000),))
        sender.start()
        begun = time.thread_time()
        assert channel.receive() == ({"delay": delay}, b"x" * 1000)
        assert time.thread_time() - begun < 0.05
        sender.join()
    os.close(writes)
    with pytest.raises(EOFError):
        channel.receive()


class Level(enum.IntEnum):
    HARD = 3


class Name(str, enum.Enum):
    SHORT = "x"


class Place(NamedTuple):
    row: int


@pytest.mark.parametrize(
    "value, plain",
    [
        (Level.HARD, 3),
        (Name.SHORT, "x"),
        (Place(2), (2,)),
        (collections.OrderedDict(a=Level.HARD), {"a": 3}),
        (np.float64(0.5), 0.5),
        (type("Own", (float,), {})(0.5), 0.5),
    ],
)
def test_classes_derived_from_plain_types_become_these(value, plain):
    found = loaded(dumped(value, refuse))
    assert found == plain and type(found) is type(plain)


def test_what_is_no_plain_data_becomes_its_text_in_infos():
    assert loaded(dumped({"seen": {1}, "how": Level}, text_of)) == {"seen": "{1}", "how": "<enum 'Level'>"}
