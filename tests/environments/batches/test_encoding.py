"""Values of an environment as agents see them, and back."""

import logging

import numpy as np
import pytest
import tree
from dm_env import specs
from gymnasium import spaces
from odd_environments import error_of

from callboard.environments.batches import encoding
from callboard.environments.batches.spaces import action_encoding
from callboard.errors import CallboardError

NEST = {
    "gear": encoding.choice(3, np.int64, start=-1),
    "rest": (encoding.numbers((2,), np.float64), encoding.choices(np.array([2, 3]), np.int64, start=[5, 0])),
}
MISTAKES = {
    "MissingPart": "the environment gives an observation without the part 'hand' of its space",
    "Words": "the observation is of type <U5, not of numbers",
    "SecretBatch": "the environment gives an observation of shape (2, 3) where its spec says (3,); a batch of "
    "environments must be a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment",
}


def test_agents_number_choices_from_zero_and_compute_in_float32():
    own = [{"gear": gear, "rest": ([gear, 0.5], [6, gear + 1])} for gear in (-1, 0, 1)]
    seen = encoding.stack(NEST, own)
    assert tree.map_structure(lambda array: array.dtype.name, seen) == {"gear": "int32", "rest": ("float32", "int32")}
    assert seen["gear"].tolist() == [0, 1, 2]
    assert seen["rest"][0].tolist() == [[-1, 0.5], [0, 0.5], [1, 0.5]]
    assert seen["rest"][1].tolist() == [[1, 0], [1, 1], [1, 2]]
    batched = {"gear": np.array([-1, 0, 1]), "rest": (seen["rest"][0], np.array([[6, 0], [6, 1], [6, 2]]))}
    tree.map_structure(np.testing.assert_array_equal, encoding.encode(NEST, batched), seen)


def test_actions_of_agents_are_those_of_the_environment_again():
    own = [{"gear": gear, "rest": ([gear, 0.5], [6, gear + 1])} for gear in (-1, 0, 1)]
    actions = encoding.stack(NEST, own)
    decoded = encoding.decode(NEST, actions, 3)
    assert tree.map_structure(lambda array: array.dtype.name, decoded) == {
        "gear": "int64",
        "rest": ("float64", "int64"),
    }
    assert decoded["gear"].tolist() == [-1, 0, 1]
    for action, expected in zip(encoding.split(NEST, actions, 3), own, strict=True):
        assert type(action["gear"]) is int and action["gear"] == expected["gear"]
        assert tuple(part.tolist() for part in action["rest"]) == expected["rest"]


NUMBER, CHOICE = spaces.Box(-1, 1, (), np.float32), spaces.MultiDiscrete(np.array(3), start=np.array(2))
SCALARS = spaces.Dict(
    {
        "speed": NUMBER,
        "exact": spaces.Box(-1, 1, (), np.float64),
        "steps": spaces.Tuple((CHOICE, spaces.Discrete(2), spaces.Box(3, 5, (), np.int16))),
        "pair": spaces.Box(-1, 1, (2,), np.float32),
    }
)


@pytest.mark.parametrize("space", [SCALARS, NUMBER, CHOICE], ids=str)
def test_numbers_of_gymnasium_are_arrays_without_axes_and_single_choices_integers(space):
    leaf = action_encoding(space)
    actions = tree.map_structure(lambda part: np.zeros((2, *part.spec.shape), part.spec.dtype), leaf)
    rows = encoding.split(leaf, actions, 2)
    assert len(rows) == 2
    for row in (*rows, encoding.decode_one(leaf, tree.map_structure(lambda part: part[0], actions))):
        assert space.contains(row)
        for part, own in zip(tree.flatten(row), tree.flatten(leaf), strict=True):
            kind = int if isinstance(own.spec, specs.DiscreteArray) else np.ndarray
            assert type(part) is kind and np.shape(part) == own.shape
            assert kind is int or part.dtype == own.dtype


def test_an_environment_may_write_into_its_action():
    leaf = encoding.controls((2,), np.float32, -1, 1)
    actions = np.ones((3, 2), np.float32)
    encoding.decode(leaf, actions, 3)[:] = 0
    assert (actions == 1).all()


def test_actions_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"actions of shape \(3,\), expected \(3, 2\)"):
        encoding.decode(encoding.controls((2,), np.float32), np.ones(3, np.float32), 3)


def test_observations_are_bounded_where_a_bound_is_finite():
    assert type(encoding.specs_in(encoding.numbers((2,), np.float64))) is specs.Array
    bounded = encoding.specs_in(encoding.numbers((2,), np.float64, -np.inf, [1, 2]))
    assert bounded.dtype == np.float32 and bounded.maximum.tolist() == [1, 2]


def test_actions_at_a_bound_lie_within_the_bound_of_the_environment():
    """0.1 is larger in float32 than in float64."""
    bounds = encoding.specs_in(encoding.controls((1,), np.float64, -0.1, 0.1))
    assert -0.1 <= float(bounds.minimum) < -0.0999999 and 0.0999999 < float(bounds.maximum) <= 0.1
    assert isinstance(encoding.specs_in(encoding.controls((1,), np.float32)), specs.BoundedArray)


def test_images_with_their_channels_first_are_turned_and_reported_once_per_shape(caplog):
    caplog.set_level(logging.WARNING)
    image = np.arange(3 * 14 * 18).reshape(3, 14, 18).astype(np.uint8)
    for _ in range(2):
        leaf = encoding.numbers(image.shape, np.uint8, np.zeros(image.shape), np.full(image.shape, 255))
    assert leaf.spec.shape == (14, 18, 3) and leaf.spec.maximum.shape == (14, 18, 3)
    seen = encoding.stack(leaf, [image, image])
    assert seen.flags.c_contiguous
    np.testing.assert_array_equal(seen[1], image.transpose(1, 2, 0))
    assert [record.args for record in caplog.records] == [((3, 14, 18), (14, 18, 3))]


@pytest.mark.parametrize("odd", MISTAKES)
def test_observations_that_do_not_fit_are_refused_in_one_line(odd):
    assert error_of(odd) == MISTAKES[odd]


def test_an_observation_of_another_shape_names_both():
    with pytest.raises(CallboardError, match=r"shape \(1, 4\) where its spec says \(4,\)"):
        encoding.stack(encoding.numbers((4,), np.float32), [np.zeros((1, 4))])
