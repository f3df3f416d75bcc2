"""TD3+BC: the policy's loss against a loop over numbers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.deterministic_policy import regularized_policy_loss
from callboard.agents.offline.td3_bc import TD3BC


def test_the_policy_s_loss_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    value, valid = rng.normal(size=9), rng.random(9) < 0.6
    unit, taken = rng.uniform(-1, 1, (2, 9, 3))
    found = TD3BC(value_weight=1.5).policy_loss(*map(tf.constant, (value, unit, taken, valid)))
    assert 0 < valid.sum() < 9
    mean = sum(abs(value[b]) for b in range(9) if valid[b]) / valid.sum()
    for b in range(9):
        error = sum((unit[b, i] - taken[b, i]) ** 2 for i in range(3)) / 3
        expected = error - 1.5 / mean * value[b] if valid[b] else 0.0
        np.testing.assert_allclose(found[b], expected, rtol=1e-6)


def test_the_gradient_flows_through_value_and_action_but_not_through_the_weight():
    value, weight, unit = tf.constant([2.0]), tf.constant(3.0), tf.constant([[0.5, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([value, weight, unit])
        loss = tf.reduce_sum(regularized_policy_loss(value, weight, unit, [[0.0, 0.0]], [True]))
    of_value, of_weight, of_unit = tape.gradient(loss, [value, weight, unit])
    assert of_value.numpy().tolist() == [-3.0] and of_weight is None and of_unit.numpy().tolist() == [[0.5, 0.0]]
    with pytest.raises(ValueError, match="shape"):
        regularized_policy_loss([1.0], 1.0, [[1.0, 2.0]], [[1.0]], [True])
