"""Specs of observations: multiple choices, and where an image has its channels."""

import pickle

import numpy as np
import pytest

from callboard.specs import MultiDiscreteArray, has_channels_first


def test_multi_discrete_array():
    spec = MultiDiscreteArray([[3, 1], [5, 2]])
    assert spec.shape == (2, 2) and spec.dtype == np.int32
    assert spec.minimum.max() == 0 and spec.maximum.tolist() == [[2, 0], [4, 1]]
    copies = [pickle.loads(pickle.dumps(spec)), spec.replace(name="other")]
    assert all(type(copy) is MultiDiscreteArray and copy.num_values.tolist() == [[3, 1], [5, 2]] for copy in copies)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(4, 84, 84), (3, 64, 64), (1, 84, 84), (3, 210, 160), (12, 64, 64), (2, 3, 3), (3, 7, 7)], True),
        ([(84, 84, 4), (210, 160, 3), (96, 96, 1), (7, 7, 3), (10, 10, 10), (8, 8, 111), (4, 5, 1), (3, 3, 3)], False),
        ([(16, 8, 8), (10, 5, 5), (5, 9, 20), (4, 10, 12)], None),
    ],
)
def test_where_channels_are(shapes, expected):
    assert {has_channels_first(shape) for shape in shapes} == {expected}


def test_an_ambiguous_image_with_its_channels_last_can_be_turned():
    for height, width, channels in [(10, 5, 5), (5, 9, 20), (4, 10, 12)]:
        assert has_channels_first((height, width, channels)) is None
        assert has_channels_first((width, height, channels)) is False
