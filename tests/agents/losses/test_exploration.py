"""The ladder of exploration rates, and actions sampled by slot."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.exploration import epsilon_greedy, epsilon_ladder

SEED = (5, 6)


def test_ladder_by_hand():
    """epsilon 0.4 and alpha 7 over 8 slots: exponents 1, 2, .. 8."""
    np.testing.assert_allclose(epsilon_ladder(np.arange(8), 8), [0.4**k for k in range(1, 9)], rtol=1e-5)
    np.testing.assert_allclose(epsilon_ladder([2, 1, 0], 3, epsilon=0.5, alpha=2.0), [0.125, 0.25, 0.5], rtol=1e-6)
    np.testing.assert_allclose(epsilon_ladder([0], 1), [0.4], rtol=1e-6)
    assert epsilon_ladder(np.arange(8), 8).dtype == tf.float32


def random_q(number, actions=5):
    return np.random.default_rng(0).normal(size=(number, actions))


def test_extremes():
    q, slot = random_q(300), np.arange(300)
    greedy = epsilon_greedy(q, np.zeros(300), slot, SEED)
    assert greedy.dtype == tf.int32
    np.testing.assert_array_equal(greedy, q.argmax(1))
    anything = epsilon_greedy(q, np.ones(300), slot, SEED, tf.int64)
    assert anything.dtype == tf.int64 and set(anything.numpy()) == set(range(5))


def test_frequencies():
    number, epsilon = 40_000, 0.3
    q = np.tile([[0.0, 3.0, 1.0]], (number, 1))
    action = epsilon_greedy(q, np.full(number, epsilon), np.arange(number), SEED).numpy()
    expected = np.array([0.1, 0.8, 0.1])
    frequencies = np.bincount(action, minlength=3) / number
    # Four standard deviations of a frequency.
    assert (np.abs(frequencies - expected) < 4 * np.sqrt(expected * (1 - expected) / number)).all()


def test_an_action_depends_on_its_slot_and_not_on_the_batch():
    q, slot, epsilon = random_q(64), np.arange(100, 164), np.full(64, 0.5)
    together = epsilon_greedy(q, epsilon, slot, SEED).numpy()
    shuffle = np.random.default_rng(1).permutation(64)
    np.testing.assert_array_equal(epsilon_greedy(q[shuffle], epsilon[shuffle], slot[shuffle], SEED), together[shuffle])
    alone = [epsilon_greedy(q[[i]], epsilon[[i]], slot[[i]], SEED).numpy()[0] for i in range(8)]
    np.testing.assert_array_equal(alone, together[:8])
    assert (epsilon_greedy(q, epsilon, slot, (5, 7)).numpy() != together).any()
    assert (epsilon_greedy(q, epsilon, slot + 1, SEED).numpy() != together).any()


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="epsilon"):
        epsilon_greedy(random_q(3), np.zeros(2), np.arange(3), SEED)
    with pytest.raises(ValueError, match="q has shape"):
        epsilon_greedy(random_q(3)[0], np.zeros(3), np.arange(3), SEED)


def test_legal_actions_are_explored_uniformly():
    number = 40_000
    legal = np.tile([[True, False, True, False, True]], (number, 1))
    q = np.where(legal, 0.0, -1e9)
    action = epsilon_greedy(q, np.ones(number), np.arange(number), SEED, legal=tf.constant(legal)).numpy()
    frequencies = np.bincount(action, minlength=5) / number
    expected = np.array([1, 0, 1, 0, 1]) / 3
    assert (np.abs(frequencies - expected) <= 4 * np.sqrt(expected * (1 - expected) / number)).all()
    greedy = epsilon_greedy(np.where(legal, -5.0, -1e9), np.zeros(number), np.arange(number), SEED)
    assert (greedy.numpy() == 0).all()


def test_of_several_choices_all_are_random_or_none():
    number = 20_000
    legal = np.tile([[[True, True, True], [True, False, True]]], (number, 1, 1))
    q = np.where(legal, np.tile([[[0.0, 3.0, 1.0], [0.0, 9.0, 2.0]]], (number, 1, 1)), -1e9)
    action = epsilon_greedy(q, np.full(number, 0.6), np.arange(number), SEED, legal=tf.constant(legal)).numpy()
    pairs = np.zeros((3, 3))
    np.add.at(pairs, tuple(action.T), 1 / number)
    expected = np.full((3, 3), 0.6 / 6)
    expected[:, 1] = 0
    expected[1, 2] += 0.4
    assert (np.abs(pairs - expected) <= 4 * np.sqrt(expected * (1 - expected) / number)).all()
    alone = [epsilon_greedy(q[[i]], [0.6], [i], SEED, legal=tf.constant(legal[[i]])).numpy()[0] for i in range(8)]
    np.testing.assert_array_equal(alone, action[:8])
