"""Rewards that agents learn from."""

import numpy as np
import tensorflow as tf

from callboard.agents.losses.rewards import learning_reward

REWARD = np.array([[-3.0, -0.5, 0.0], [0.25, 1.0, 9.0]], np.float32)


def test_rewards_are_scaled_and_then_clipped():
    for clip, low, high in ((1.5, -1.5, 1.5), ((-1.0, 5.0), -1.0, 5.0)):
        expected = [[min(max(2.0 * reward, low), high) for reward in row] for row in REWARD]
        np.testing.assert_array_equal(learning_reward(REWARD, 2.0, clip), expected)
        tensor = learning_reward(tf.constant(REWARD), 2.0, clip)
        assert tensor.dtype == tf.float32 and learning_reward(REWARD, 2.0, clip).dtype == np.float32
        np.testing.assert_array_equal(tensor, expected)


def test_by_default_rewards_are_those_of_the_environment():
    assert learning_reward(REWARD) is REWARD
