"""Observations from a caller: one or a batch, distinguished by their shape, in the environment's form."""

import re

import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.batches.given_observations import read_observations
from callboard.environments.batches.spaces import observation_encoding
from callboard.errors import CallboardError

VECTOR = observation_encoding(spaces.Box(-1, 1, (3,), np.float64))
IMAGE = observation_encoding(spaces.Box(0, 255, (3, 16, 24), np.uint8))
CHOICE = observation_encoding(spaces.Discrete(3, start=5))
NEST = observation_encoding(
    spaces.Dict({"arm": spaces.Tuple((spaces.Box(-1, 1, ()), spaces.MultiBinary(2))), "steps": spaces.Discrete(9)})
)


def test_one_vector_and_a_batch_of_them():
    one, size = read_observations(VECTOR, np.array([0.5, 1, 2]))
    assert size is None and one.dtype == np.float32 and one.tolist() == [[0.5, 1, 2]]
    batch, size = read_observations(VECTOR, np.zeros((4, 3)))
    assert size == 4 and batch.shape == (4, 3)
    # Numbers without a dtype, as from JSON, and of another width.
    assert read_observations(VECTOR, [1, 0, 0])[0].dtype == np.float32
    assert read_observations(VECTOR, np.zeros(3, np.float32))[1] is None


def test_images_keep_their_channels_where_the_environment_has_them():
    image = np.arange(3 * 16 * 24, dtype=np.uint8).reshape(3, 16, 24)
    one, size = read_observations(IMAGE, image)
    assert size is None and one.shape == (1, 16, 24, 3)
    np.testing.assert_array_equal(one[0], np.moveaxis(image, 0, -1))
    batch, size = read_observations(IMAGE, np.stack([image, image]))
    assert size == 2 and batch.shape == (2, 16, 24, 3)
    assert read_observations(IMAGE, image.tolist())[0].dtype == np.uint8


def test_choices_are_numbered_from_0_for_the_agent():
    for given, expected, size in ((6, [1], None), (np.int64(7), [2], None), ([5, 7], [0, 2], 2)):
        found = read_observations(CHOICE, given)
        assert found[0].tolist() == expected and found[1] == size and found[0].dtype == np.int32


def test_nests_are_read_part_by_part():
    one, size = read_observations(NEST, {"arm": (0.5, np.array([1, 0], np.int8)), "steps": 3})
    assert size is None and one["arm"][0].shape == (1,) and one["arm"][1].shape == (1, 2)
    batch, size = read_observations(NEST, {"arm": [np.zeros(2), np.zeros((2, 2), np.int8)], "steps": [3, 4]})
    assert size == 2 and batch["steps"].tolist() == [3, 4]


@pytest.mark.parametrize(
    "encodings, given, message",
    [
        (
            VECTOR,
            np.zeros(4),
            "the observation is float64(4,), but the environment gives float64(3,), or float64(B, 3) for a batch of B",
        ),
        (VECTOR, np.zeros((2, 2, 3)), "the observation is float64(2, 2, 3), but"),
        (VECTOR, np.zeros((0, 3)), "the observation is float64(0, 3), but"),
        (VECTOR, "abc", "the observation contains text, 'abc': give numbers"),
        (VECTOR, None, "the observation contains null (None): give numbers"),
        (VECTOR, {"x": 1}, "the observation contains a dictionary: give numbers"),
        (VECTOR, np.zeros(3, np.complex64), "the observation is of type complex64, not of numbers"),
        (IMAGE, np.full((3, 16, 24), 0.5), "the observation contains 0.5, which uint8, the dtype of its space, cannot"),
        (
            IMAGE,
            np.zeros((16, 24, 3), np.uint8),
            "the observation is uint8(16, 24, 3), but the environment gives",
        ),
        (IMAGE, np.full((3, 16, 24), 256), "the observation contains 256, which uint8, the dtype of its space, cannot"),
        (CHOICE, 5.5, "the observation contains 5.5, which int64, the dtype of its space, cannot hold"),
        (CHOICE, True, "the observation is True, which is outside of its space, 5 to 7"),
        (CHOICE, [[5]], "the observation is int64(1, 1), but the environment gives int64(), or int64(B,) for a batch"),
        (NEST, np.zeros(3), "the observation is a ndarray, not a mapping with the parts 'arm', 'steps'"),
        (NEST, {"arm": (0.5, [1, 0])}, "the observation has no part 'steps'"),
        (
            NEST,
            {"arm": (0.5, [1, 0]), "steps": 3, "more": 0},
            "the observation has the part 'more', which the policy does not know",
        ),
        (NEST, {"arm": (0.5, [1, 0], 2), "steps": 3}, "the observation at 'arm' has the part 2, which the policy does"),
        (NEST, {"arm": 0.5, "steps": 3}, "the observation at 'arm' is a float, not a tuple of the parts 0, 1"),
        (NEST, {"arm": (0.5, [1, 0, 1]), "steps": 3}, "the observation at 'arm/1' is int64(3,), but"),
        (
            NEST,
            {"arm": (0.5, [1, 0]), "steps": [3, 4]},
            "the parts of the observation disagree on the number of observations: 'arm/0' has no batch axis, "
            "'arm/1' has no batch axis, 'steps' has 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(encodings, given, message):
    with pytest.raises(CallboardError, match=f"^{re.escape(message)}[^\n]*$"):
        read_observations(encodings, given)
