"""The terms of the actor-critic loss, and what they do to the weights."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.policy_gradient import entropy_loss, policy_gradient_loss, value_loss

VALID = np.array([[True, False], [True, True]])
ADVANTAGE = np.array([[2.0, 5.0], [-1.0, 0.5]])


def test_by_hand():
    log_prob = np.array([[-1.0, -2.0], [-3.0, -4.0]])
    np.testing.assert_allclose(policy_gradient_loss(log_prob, ADVANTAGE, VALID), [[2.0, 0.0], [-3.0, 2.0]])
    np.testing.assert_allclose(entropy_loss(np.array([[0.5, 0.6], [0.7, 0.0]]), VALID), [[-0.5, 0.0], [-0.7, 0.0]])
    np.testing.assert_allclose(value_loss(log_prob, ADVANTAGE, VALID), [[4.5, 0.0], [2.0, 10.125]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(dtype):
    """The policy's is -advantage, the value's V - target, and none where a transition does not count."""
    x = tf.Variable(np.array([[-1.0, -2.0], [-3.0, -4.0]], dtype))
    target = tf.Variable(ADVANTAGE.astype(dtype))
    with tf.GradientTape(persistent=True) as tape:
        policy, value = policy_gradient_loss(x, target, VALID), value_loss(x, target, VALID)
    assert policy.dtype == value.dtype == dtype
    np.testing.assert_allclose(tape.gradient(policy, x), np.where(VALID, -ADVANTAGE, 0))
    np.testing.assert_allclose(tape.gradient(value, x), np.where(VALID, x - ADVANTAGE, 0))
    assert tape.gradient(policy, target) is None and tape.gradient(value, target) is None


def test_what_does_not_count_may_be_nan():
    log_prob = np.array([[-1.0, np.nan], [-3.0, -4.0]])
    assert np.isfinite(policy_gradient_loss(log_prob, ADVANTAGE, VALID)).all()


def test_a_trailing_axis_is_refused():
    """`[T, B, 1]` against `[T, B]` would broadcast to `[T, B, B]`."""
    with pytest.raises(ValueError, match="v_t has shape"):
        value_loss(ADVANTAGE[..., np.newaxis], ADVANTAGE, VALID)
    with pytest.raises(ValueError, match="same shape"):
        value_loss(ADVANTAGE[:1], ADVANTAGE, VALID)
