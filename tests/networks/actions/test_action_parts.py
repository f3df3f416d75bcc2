"""The parts of composed actions: flat tensors and back."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tree
from composed_actions import ACTIONS, BOX, random_mask
from dm_env import specs as dm_specs

from callboard.errors import CallboardError
from callboard.networks.actions.action_parts import ActionPart, ActionParts, Chosen, one_hot_choices

NEST = ActionParts(ACTIONS["nest"])


def test_parts_are_in_the_order_of_a_flat_nest():
    assert NEST.sizes.tolist() == [3, 2, 4] and NEST.numbers == 2
    assert NEST.parts == (
        ActionPart(True, 0, 3),
        ActionPart(True, 1, 2),
        ActionPart(True, 2, 4),
        ActionPart(False, 0, 2),
    )
    boxes = ActionParts(ACTIONS["tuple of boxes"])
    assert boxes.parts == (ActionPart(False, 0, 2), ActionPart(False, 2, 1)) and boxes.choices((1, 2)) == ()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("leading", [(), (5,), (2, 5)])
def test_there_and_back(name, leading):
    parts, rng = ActionParts(ACTIONS[name]), np.random.default_rng(0)
    choices = rng.integers(parts.sizes, size=(*leading, len(parts.sizes))) if len(parts.sizes) else ()
    numbers = rng.uniform(-1, 1, (*leading, parts.numbers)).astype(np.float32) if parts.numbers else ()
    action = parts.to_environment(Chosen(*(tf.constant(part) if len(part) else part for part in (choices, numbers))))
    tree.assert_same_structure(action, ACTIONS[name])
    for leaf, spec in zip(tree.flatten(action), tree.flatten(ACTIONS[name]), strict=True):
        assert leaf.shape == (*leading, *spec.shape) and leaf.dtype == spec.dtype
        assert (leaf.numpy() >= spec.minimum).all() and (leaf.numpy() <= spec.maximum).all()
    if len(choices):
        np.testing.assert_array_equal(parts.choices(action), choices)
    if len(numbers):
        bounded = numbers.copy()
        if BOX in tree.flatten(ACTIONS[name]):
            # Without an upper bound a number is clipped, but not scaled.
            bounded[..., 1] = np.maximum(bounded[..., 1], 0.0)
        np.testing.assert_allclose(parts.unit_numbers(action, tf.float32), bounded, atol=1e-6)


def test_unknown_batch_sizes():
    signature = tree.map_structure(lambda leaf: tf.TensorSpec((None, *leaf.shape), leaf.dtype), ACTIONS["nest"])

    @functools.partial(tf.function, input_signature=[signature], autograph=False)
    def there_and_back(action):
        return NEST.to_environment(Chosen(NEST.choices(action), NEST.unit_numbers(action, tf.float32)))

    action = {"move": np.zeros((3, 2), np.float32), "arm": (np.full(3, 2), np.full((3, 1, 2), 1, np.int32))}
    for leaf, same in zip(tree.flatten(there_and_back(action)), tree.flatten(action), strict=True):
        np.testing.assert_allclose(leaf, same, atol=1e-6)


def test_rows_of_choices_are_padded_with_zeros():
    values = np.arange(1.0, 10.0)
    np.testing.assert_array_equal(NEST.choice_rows(values), [[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9]])
    equal = ActionParts(ACTIONS["equal sizes"])
    np.testing.assert_array_equal(equal.choice_rows(values[:8]), values[:8].reshape(4, 2))
    assert equal.equal_sizes and not NEST.equal_sizes
    np.testing.assert_array_equal(one_hot_choices(NEST, [2, 0, 3], tf.float32), np.eye(4)[[2, 0, 3]])


def test_legal_choices():
    seen = tf.zeros((6, 3))
    assert ActionParts(ACTIONS["equal sizes"]).legal_choices(seen) is None
    np.testing.assert_array_equal(NEST.legal_choices(seen), [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    mask = random_mask(np.random.default_rng(0), NEST.sizes, 6)
    mask[0, 3:5] = 0
    parts = (mask[:, :3], mask[:, 3:5], mask[:, 5:])
    rows = np.zeros((6, 3, 4), bool)
    for row in range(6):
        for choice, part in enumerate(parts):
            for value in range(part.shape[1]):
                rows[row, choice, value] = part[row, value] or not part[row].any()
    for masks in (mask, parts):
        np.testing.assert_array_equal(NEST.legal_choices({"action_mask": masks, "observation": seen}), rows)


def test_other_arrays_are_refused():
    with pytest.raises(CallboardError, match="floats with bounds"):
        ActionParts((dm_specs.DiscreteArray(2), dm_specs.Array((2,), np.float32)))
