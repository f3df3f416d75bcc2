"""The loss of imitation against a loop over numbers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.behavioral_cloning import advantage_weights, imitation_loss


@pytest.mark.parametrize("shape", [(7,), (3, 4)])
def test_the_loss_is_the_weighted_negative_log_probability_where_transitions_are_valid(shape):
    rng = np.random.default_rng(0)
    log_prob, weight, valid = rng.normal(size=shape), rng.random(shape), rng.random(shape) < 0.6
    for weights in (None, weight):
        expected = np.zeros(shape)
        for index in np.ndindex(*shape):
            if valid[index]:
                expected[index] = -(1.0 if weights is None else weights[index]) * log_prob[index]
        np.testing.assert_allclose(imitation_loss(log_prob, valid, weights), expected)


def test_no_gradient_flows_through_weights_or_invalid_transitions():
    log_prob, weight = tf.constant([1.0, np.nan]), tf.constant([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch([log_prob, weight])
        loss = tf.reduce_sum(imitation_loss(log_prob, [True, False], weight))
    gradients = tape.gradient(loss, [log_prob, weight])
    assert gradients[0].numpy().tolist() == [-2.0, 0.0] and gradients[1] is None
    with pytest.raises(ValueError, match="shape"):
        imitation_loss([1.0], [True, False])


def test_weights_of_advantages_are_exponential_up_to_a_limit():
    advantage = np.array([-2.0, 0.0, 0.5, 3.0, 1e4])
    expected = [min(np.exp(1.5 * one), 20.0) if one < 100 else 20.0 for one in advantage]
    advantage = tf.constant(advantage)
    with tf.GradientTape() as tape:
        tape.watch(advantage)
        found = advantage_weights(advantage, 1.5, 20.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert tape.gradient(found, advantage) is None
