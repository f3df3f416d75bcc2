"""Generalized advantage estimation against sums written straight from the paper, and numbers worked by hand."""

import numpy as np
import pytest
import tensorflow as tf
from episodes import is_experience, random_timesteps

from callboard.agents.losses.gae import gae, standardized
from callboard.transitions import valid_transitions

GAMMA = 0.9


def random_sequences(seed, steps=12, batch=24):
    rng = np.random.default_rng(seed)
    first, last, discount = random_timesteps(rng, steps, batch)
    sequences = dict(
        values=rng.normal(size=(steps + 1, batch)),
        r_t=rng.normal(size=(steps, batch)),
        discount_t=GAMMA * discount,
        valid_t=valid_transitions(first, last, discount),
    )
    return sequences, (first, last, discount)


def advantage_sum(sequences, timesteps, lambda_, s, b):
    """Equation (16) from the timestep s on, to the end of the episode or of the sequence."""
    first, last, discount = timesteps
    values, r_t = sequences["values"][:, b], sequences["r_t"][:, b]
    advantage, weight = 0.0, 1.0
    for t in range(s, len(r_t)):
        if not is_experience(first, last, discount, t, b):
            break
        terminated = discount[t, b] == 0
        delta = r_t[t] + (0.0 if terminated else GAMMA * values[t + 1]) - values[t]
        advantage += weight * delta
        if terminated:
            break
        weight *= GAMMA * lambda_
    return advantage


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_sum_of_the_paper(seed, lambda_):
    sequences, timesteps = random_sequences(seed)
    _, last, discount = timesteps
    is_valid = sequences["valid_t"]
    # There are ignored actions, terminations, time limits, and episodes cut off without their final observation.
    assert last[:-1].any() and (is_valid & (discount == 0)).any() and (last[1:] & (discount == 1)).any()
    assert (~is_valid & ~last[:-1]).any()

    result = gae(**sequences, lambda_=lambda_)
    steps, batch = is_valid.shape
    expected = np.array(
        [[advantage_sum(sequences, timesteps, lambda_, s, b) for b in range(batch)] for s in range(steps)]
    )
    assert result.advantages.dtype == tf.float64
    np.testing.assert_allclose(result.advantages, expected, atol=1e-12)
    np.testing.assert_allclose(result.targets, sequences["values"][:-1] + expected, atol=1e-12)


def test_by_hand():
    """gamma 1/2, lambda 1/2: a time limit after the second step, shown at timestep 2, and then a termination."""
    sequence = dict(
        values=[[1.0], [2.0], [4.0], [3.0], [100.0]],
        r_t=[[1.0], [2.0], [9.0], [5.0]],
        discount_t=[[0.5], [0.5], [0.5], [0.0]],
        valid_t=[[True], [True], [False], [True]],
    )
    # delta: 1 + 1 - 1 = 1; 2 + 2 - 2 = 2, bootstrapped from the final observation's value of 4; none; 5 - 3 = 2.
    # A_0 = 1 + 1/4 * 2 = 1.5.
    result = gae(**sequence, lambda_=0.5)
    np.testing.assert_allclose(result.advantages, [[1.5], [2.0], [0.0], [2.0]])
    np.testing.assert_allclose(result.targets, [[2.5], [4.0], [4.0], [5.0]])


def test_what_does_not_count_cannot_spoil_the_rest():
    sequences, _ = random_sequences(5)
    expected = gae(**sequences, lambda_=0.9)
    sequences["r_t"] = np.where(sequences["valid_t"], sequences["r_t"], np.inf)
    result = gae(**sequences, lambda_=0.9)
    np.testing.assert_array_equal(result.advantages, expected.advantages)
    np.testing.assert_array_equal(result.targets, expected.targets)


def test_no_gradients_flow():
    sequences, _ = random_sequences(1)
    values = tf.constant(sequences.pop("values"))
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = tf.add_n([tf.reduce_sum(part) for part in gae(values, **sequences, lambda_=0.9)])
    assert tape.gradient(total, values) is None


def test_wrong_shapes_are_named():
    sequences, _ = random_sequences(0)
    with pytest.raises(ValueError, match="v_t .*r_t"):
        gae(**{**sequences, "values": sequences["values"][:-1]}, lambda_=1.0)
    with pytest.raises(ValueError, match="r_t has shape"):
        gae(**{**sequences, "r_t": sequences["r_t"][0]}, lambda_=1.0)


def test_standardized_over_valid_transitions():
    rng = np.random.default_rng(0)
    advantages = 5 + 3 * rng.normal(size=(7, 9))
    is_valid = rng.random((7, 9)) < 0.6
    result = standardized(np.where(is_valid, advantages, 1000.0), is_valid).numpy()
    chosen = advantages[is_valid]
    np.testing.assert_allclose(result[is_valid], (chosen - chosen.mean()) / chosen.std(), rtol=1e-7)
    np.testing.assert_array_equal(result[~is_valid], 0)


@pytest.mark.parametrize("share", [0.5, 0.05, 0.0])
def test_errors_of_a_value_that_explains_its_targets_are_not_blown_up(share):
    rng = np.random.default_rng(1)
    is_valid = rng.random((8, 9)) < 0.7
    targets = 4 + rng.normal(size=(8, 9))
    advantages = share * targets[is_valid].std() * rng.normal(size=(8, 9))
    spoiled = np.where(is_valid, targets, 1e6)
    result = standardized(advantages, is_valid, target_t=spoiled).numpy()[is_valid]
    chosen = advantages[is_valid]
    least = max(chosen.std(), 0.1 * targets[is_valid].std())
    np.testing.assert_allclose(result, (chosen - chosen.mean()) / least, rtol=1e-6)
    assert (least > chosen.std()) == (share < 0.1)
    # Neither the scale of rewards nor a constant in all targets changes it.
    scaled = standardized(50 * advantages, is_valid, target_t=50 * spoiled - 300).numpy()[is_valid]
    np.testing.assert_allclose(scaled, result, rtol=1e-6)


def test_standardized_of_nothing_and_of_equals():
    np.testing.assert_array_equal(standardized(np.ones((2, 3)), np.zeros((2, 3), bool)), np.zeros((2, 3)))
    np.testing.assert_array_equal(standardized(np.full((2, 3), 0.5), np.ones((2, 3), bool)), np.zeros((2, 3)))
