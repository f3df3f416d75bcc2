"""From unit actions to an environment's bounds and back."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.actions.action_bounds import ActionBounds
from callboard.networks.distributions import SquashedGaussian

LOW, HIGH = np.array([[-1.0, 0.0, 2.0], [-5.0, 7.0, -1e-3]]), np.array([[1.0, 10.0, 3.0], [5.0, 7.0, 1e-3]])
BOUNDS = {
    "matrix": specs.BoundedArray((2, 3), np.float32, LOW, HIGH),
    "float64 matrix": specs.BoundedArray((2, 3), np.float64, LOW, HIGH),
    "one number for all": specs.BoundedArray((4,), np.float32, -2.0, 6.0),
    "scalar": specs.BoundedArray((), np.float32, -2.0, 2.0),
    "the largest numbers": specs.BoundedArray((2,), np.float64, -np.finfo(np.float64).max, np.finfo(np.float64).max),
}
INFINITE = specs.BoundedArray((3,), np.float32, [-np.inf, 0.0, -2.0], [np.inf, np.inf, 4.0])


@pytest.mark.parametrize("name", BOUNDS)
def test_corners_middle_and_back(name):
    spec = BOUNDS[name]
    bounds = ActionBounds(spec)
    low, high = np.broadcast_to(spec.minimum, spec.shape), np.broadcast_to(spec.maximum, spec.shape)
    assert bounds.size == low.size
    unit = np.stack([np.full(bounds.size, number) for number in (-1.0, 0.0, 1.0)])
    action = bounds.to_environment(unit)
    assert action.shape == (3, *spec.shape) and action.dtype == spec.dtype
    np.testing.assert_allclose(action, np.stack([low, low / 2 + high / 2, high]), rtol=1e-6)

    unit = np.random.default_rng(0).uniform(-1, 1, size=(5, 4, bounds.size))
    action = bounds.to_environment(tf.constant(unit, tf.float32))
    assert action.shape == (5, 4, *spec.shape)
    for row in action.numpy().reshape(20, *spec.shape):
        spec.validate(row)
    moves = np.reshape(high > low, -1)
    back = bounds.from_environment(action).numpy()
    assert back.dtype == np.float32 and back.shape == unit.shape
    np.testing.assert_allclose(back[..., moves], unit[..., moves], atol=1e-5)
    np.testing.assert_array_equal(back[..., ~moves], 0)
    assert bounds.from_environment(action, tf.float64).dtype == tf.float64


def test_rounding_never_leaves_the_bounds():
    """float32 bounds of thirds: the environment itself checks that every action is within them."""
    space = gymnasium.spaces.Box(np.float32(-1 / 3), np.float32(0.7), (1000,))
    bounds = ActionBounds(specs.BoundedArray(space.shape, space.dtype, space.low, space.high))
    for number in (-1.0, 1.0, -1.0 - 1e-7, 1.0 + 1e-7):
        assert space.contains(bounds.to_environment(np.full(1000, number, np.float32)).numpy())
    np.testing.assert_array_equal(np.abs(bounds.from_environment(np.full(1000, 0.8, np.float32))), 1)


@pytest.mark.slow("daily")
def test_unknown_batch_in_a_graph():
    bounds = ActionBounds(BOUNDS["matrix"])
    there = tf.function(bounds.to_environment, input_signature=[tf.TensorSpec((None, None, 6))])
    back = tf.function(bounds.from_environment, input_signature=[tf.TensorSpec((None, 2, 3))])
    action = there(np.zeros((2, 3, 6)))
    assert action.shape == (2, 3, 2, 3) and back(action[0]).shape == (3, 6)
    assert there.get_concrete_function().output_shapes[2:] == (2, 3)
    assert back.get_concrete_function().output_shapes[1] == 6


def test_density_in_the_units_of_the_environment():
    bounds = ActionBounds(specs.BoundedArray((1,), np.float64, 2.0, 12.0))
    number = 20_000
    action = 2 + 10 * (np.arange(number) + 0.5)[:, np.newaxis] / number
    distribution = SquashedGaussian(tf.fill((number, 1), np.float64(0.4)), tf.fill((number, 1), np.float64(-0.5)))
    log_prob = distribution.log_prob(bounds.from_environment(action, tf.float64)) - np.log(5.0)  # Half the range.
    np.testing.assert_allclose(np.exp(log_prob).sum() * 10 / number, 1, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (specs.DiscreteArray(3), "not 3 discrete actions"),
        (specs.Array((2,), np.float32), r"not float32\(2,\)"),
        (specs.BoundedArray((2,), np.int32, 0, 4), r"not int32\(2,\)"),
        (specs.BoundedArray((2,), np.float32, -np.inf, 4), "finite bounds"),
        ({"arm": BOUNDS["scalar"]}, "one action"),
    ],
)
def test_what_a_gaussian_cannot_do(spec, message):
    with pytest.raises(CallboardError, match=message) as error:
        ActionBounds(spec)
    assert "\n" not in str(error.value)


def test_infinite_bounds_are_not_scaled_but_kept():
    bounds = ActionBounds(INFINITE, unbounded=True)
    unit = np.array([[-50.0, -50.0, -50.0], [50.0, 50.0, 50.0], [0.25, 0.25, 0.25]], np.float32)
    action = bounds.to_environment(unit)
    np.testing.assert_allclose(action, [[-50, 0, -2], [50, 50, 4], [0.25, 0.25, 1.75]])
    for row in action.numpy():
        INFINITE.validate(row)
    np.testing.assert_allclose(bounds.from_environment(action[2]), unit[2], rtol=1e-6)
    with pytest.raises(CallboardError, match="finite bounds"):
        ActionBounds(INFINITE)
