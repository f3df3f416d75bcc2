"""Actions of others: what the environment takes becomes what the agent learns from, and the rest is refused."""

import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments.batches.encoding import split
from callboard.environments.batches.spaces import action_encoding
from callboard.environments.external.given_actions import read_action
from callboard.errors import CallboardError

SPACE = spaces.Dict(
    {
        "turn": spaces.Discrete(3, start=-1),
        "keys": spaces.MultiDiscrete([2, 3]),
        "arms": spaces.Tuple([spaces.Box(-0.1, 0.1, (2,), np.float64), spaces.MultiBinary(2)]),
    }
)


def test_an_action_of_the_space_comes_back_as_it_was():
    encoding = action_encoding(SPACE)
    for seed in range(20):
        SPACE.seed(seed)
        action = SPACE.sample()
        read = read_action(encoding, action)
        (back,) = split(encoding, {**read, **{key: _batched(read[key]) for key in read}}, 1)
        assert back["turn"] == action["turn"]
        np.testing.assert_array_equal(back["keys"], action["keys"])
        np.testing.assert_allclose(back["arms"][0], action["arms"][0], rtol=1e-6)
        np.testing.assert_array_equal(back["arms"][1], action["arms"][1])


def _batched(part):
    return tuple(map(_batched, part)) if isinstance(part, tuple) else part[np.newaxis]


def test_an_action_at_its_bound_is_within_it():
    (force, _) = read_action(action_encoding(SPACE), {"turn": 0, "keys": [0, 0], "arms": [[0.1, -0.1], [0, 1]]})["arms"]
    assert force.dtype == np.float32
    assert np.all(np.abs(force.astype(np.float64)) <= 0.1)


@pytest.mark.parametrize(
    "space, action",
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3), 0.5),
        (spaces.Discrete(3), [1]),
        (spaces.Discrete(3), "1"),
        (spaces.Discrete(3), None),
        (spaces.MultiDiscrete([2, 3]), [0, 3]),
        (spaces.Box(-1, 1, (2,)), [0.0, 1.5]),
        (spaces.Box(-1, 1, (2,)), [0.0, float("nan")]),
        (spaces.Box(-1, 1, (2,)), [0.0]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), [1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), "11"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), [1, 1, 0]),
        (spaces.Dict(turn=spaces.Discrete(2)), {"turn": 1, "force": 0}),
    ],
)
def test_others_are_refused(space, action):
    with pytest.raises(CallboardError):
        read_action(action_encoding(space), action)
