"""Action masks in observations: what the network sees of them, and which ones are refused."""

import numpy as np
import pytest
from dm_env import specs as dm_specs

from callboard.action_masks import (
    check_mask,
    choice_sizes,
    forbidden_action,
    has_mask,
    illegal_rows,
    visible_spec,
    with_legal_choices,
    without_mask,
)
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

VECTOR = dm_specs.Array((2,), np.float32)
BOX = dm_specs.BoundedArray((2,), np.float32, -1, 1)


def mask(size):
    return dm_specs.BoundedArray((size,), np.int8, 0, 1)


def spec(masks, action, **rest):
    return EnvironmentSpec({"action_mask": masks, **(rest or {"observation": VECTOR})}, action)


def test_the_network_sees_the_rest_of_the_observation():
    assert without_mask({"action_mask": 1, "observation": (2, 3)}) == (2, 3)
    assert without_mask({"action_mask": 1, "observation": 2, "goal": 3}) == {"observation": 2, "goal": 3}
    assert without_mask({"action_mask": 1, "board": 2}) == {"board": 2}
    for unmasked in ({"observation": 2}, 5, (1, 2)):
        assert not has_mask(unmasked) and without_mask(unmasked) == unmasked
    masked = spec(mask(3), dm_specs.DiscreteArray(3))
    assert visible_spec(masked).observation is VECTOR and visible_spec(masked).action is masked.action


def test_choices_are_in_the_order_of_a_flat_action():
    action = {"b": dm_specs.DiscreteArray(4), "a": (MultiDiscreteArray([[2, 3], [5, 6]]), BOX)}
    assert choice_sizes(action).tolist() == [2, 3, 5, 6, 4]
    assert choice_sizes(BOX).tolist() == []


def test_choices_that_a_mask_allows_replace_others_in_some_rows():
    action = {"a": MultiDiscreteArray([2, 3]), "b": BOX, "c": dm_specs.DiscreteArray(2)}
    given = {"a": np.zeros((2, 2), np.int32), "b": np.ones((2, 2), np.float32), "c": np.zeros(2, np.int32)}
    masks = np.array([[0, 1, 0, 0, 1, 0, 1]] * 2)
    found = with_legal_choices(spec(mask(7), action), given, masks, np.array([False, True]))
    assert found["a"].tolist() == [[0, 0], [1, 2]] and found["c"].tolist() == [0, 1]
    assert found["b"].tolist() == [[1, 1], [1, 1]] and given["c"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "masks, action",
    [
        (mask(3), dm_specs.DiscreteArray(3)),
        (mask(5), MultiDiscreteArray([2, 3])),
        ((mask(2), mask(3)), MultiDiscreteArray([2, 3])),
        ({"a": mask(2), "b": mask(3)}, {"a": dm_specs.DiscreteArray(2), "b": dm_specs.DiscreteArray(3), "c": BOX}),
    ],
)
def test_masks_that_fit(masks, action):
    check_mask(spec(masks, action))


@pytest.mark.parametrize(
    "masks, action, error",
    [
        (mask(2), dm_specs.DiscreteArray(3), "'action_mask' has 2 elements, but the environment's action has 3 values"),
        ((mask(3), mask(2)), MultiDiscreteArray([2, 3]), r"has 3 \+ 2 elements, but .* has 2 \+ 3 values"),
        (mask(2), BOX, r"is for discrete actions, but the environment's action is float32\(2,\): rename"),
        (dm_specs.Array((1, 3), np.int8), dm_specs.DiscreteArray(3), r"has the shape \(1, 3\): make it a vector"),
    ],
)
def test_masks_that_do_not_fit(masks, action, error):
    with pytest.raises(CallboardError, match=error):
        check_mask(spec(masks, action))


def test_an_observation_has_more_than_a_mask():
    with pytest.raises(CallboardError, match="nothing but an 'action_mask'"):
        check_mask(EnvironmentSpec({"action_mask": mask(3)}, dm_specs.DiscreteArray(3)))
    check_mask(EnvironmentSpec({"seen": mask(2)}, dm_specs.DiscreteArray(3)))


def test_rows_in_which_a_choice_has_nothing_left():
    one = spec(mask(2), dm_specs.DiscreteArray(2))
    assert illegal_rows(one, {"action_mask": np.array([[0, 1], [0, 0], [1, 1]])}).tolist() == [1]
    two = spec((mask(2), mask(3)), MultiDiscreteArray([2, 3]))
    parts = np.array([[0, 1], [1, 0], [0, 0]]), np.array([[0, 0, 1], [0, 0, 0], [1, 1, 1]])
    assert illegal_rows(two, {"action_mask": parts}).tolist() == [1, 2]
    assert illegal_rows(two, {"action_mask": np.concatenate(parts, axis=1)}).tolist() == [1, 2]


def test_the_first_action_that_a_mask_forbids():
    action = {"b": BOX, "c": (MultiDiscreteArray([[2], [3]]), dm_specs.DiscreteArray(2))}
    masks = np.array([[0, 1, 0, 0, 1, 0, 1], [1, 1, 1, 1, 1, 0, 1], [1, 0, 1, 1, 1, 1, 1]])
    box = np.zeros((3, 2), np.float32)

    def found(keys, turns):
        given = {"b": box, "c": (np.array(keys).reshape(3, 2, 1), np.array(turns))}
        return forbidden_action(spec(mask(7), action), {"action_mask": masks}, given)

    assert found([[1, 2], [1, 2], [0, 0]], [1, 1, 0]) is None
    assert found([[1, 2], [1, 2], [1, 0]], [1, 1, 0]) == (2, ("c", "0"), [[1], [0]])
    assert found([[1, 2], [1, 2], [1, 0]], [1, 0, 0]) == (1, ("c", "1"), 0)
    assert found([[1, 1], [1, 2], [0, 0]], [1, 1, 0]) == (0, ("c", "0"), [[1], [1]])
    assert forbidden_action(EnvironmentSpec({"seen": VECTOR}, action), {"seen": box}, {}) is None
