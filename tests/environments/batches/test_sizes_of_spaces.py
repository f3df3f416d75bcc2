"""Discrete spaces that are too large for one-hot are refused in one line, whatever contains them."""

import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.batches.spaces import observation_encoding
from callboard.errors import CallboardError

HUGE = 2**40


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(HUGE),
        spaces.MultiDiscrete([3, HUGE]),
        spaces.MultiDiscrete(np.full((10, 10), 50_000)),
        spaces.Dict(id=spaces.Discrete(HUGE), place=spaces.Box(-1, 1, (2,), np.float32)),
        spaces.Tuple((spaces.Discrete(2), spaces.Dict(inner=spaces.Discrete(HUGE)))),
    ],
    ids=str,
)
def test_a_discrete_space_that_is_too_large_is_refused(space):
    with pytest.raises(CallboardError, match=r"has [\d,]+ values, too many for one-hot: hash"):
        observation_encoding(space)


def test_a_large_one_is_not():
    assert observation_encoding(spaces.Discrete(100_000)).spec.num_values == 100_000
