"""Exploration bonuses against loops over numbers, written from the papers."""

import numpy as np
import pytest
import tensorflow as tf
from episodes import is_experience, random_timesteps

from callboard.agents.losses.exploration_bonus import curiosity, distillation, inverse_loss, non_episodic
from callboard.agents.losses.gae import gae
from callboard.agents.losses.vtrace import vtrace
from callboard.transitions import valid_transitions

STEPS, BATCH, FEATURES = 9, 6, 4
GAMMA = 0.9


def features(rng):
    return rng.normal(size=(STEPS, BATCH, FEATURES))


def some_valid(rng):
    return rng.random((STEPS, BATCH)) < 0.6


def test_distillation_is_the_squared_error_of_the_predictor():
    rng = np.random.default_rng(0)
    predicted, target, valid = tf.Variable(features(rng)), tf.Variable(features(rng)), some_valid(rng)
    with tf.GradientTape(persistent=True) as tape:
        error, loss = distillation(predicted, target, valid)
        total = tf.reduce_sum(loss)
    for t in range(STEPS):
        for b in range(BATCH):
            squares = sum((float(predicted[t, b, i]) - float(target[t, b, i])) ** 2 for i in range(FEATURES))
            assert float(error[t, b]) == float(loss[t, b]) == pytest.approx(squares if valid[t, b] else 0.0)
    difference = 2 * (predicted.numpy() - target.numpy()) * valid[..., np.newaxis]
    np.testing.assert_allclose(tape.gradient(total, predicted), difference)
    assert tape.gradient(total, target) is None and tape.gradient(error, predicted) is None


def test_nothing_is_learned_where_there_is_no_bonus_whatever_is_there():
    rng = np.random.default_rng(1)
    valid = some_valid(rng)
    broken = np.where(valid[..., np.newaxis], features(rng), np.inf)
    error, loss = distillation(broken, features(rng), valid)
    assert np.isfinite(error).all() and (error.numpy()[~valid] == 0).all()
    error, loss = curiosity(broken, features(rng), np.where(valid, 1.0, np.nan), valid, 0.2)
    assert np.isfinite(loss).all() and (loss.numpy()[~valid] == 0).all()


def test_curiosity_weighs_both_losses_and_trains_the_features_by_both():
    rng = np.random.default_rng(2)
    beta = 0.3
    predicted, after, valid = tf.Variable(features(rng)), tf.Variable(features(rng)), some_valid(rng)
    inverse = rng.random((STEPS, BATCH))
    with tf.GradientTape() as tape:
        error, loss = curiosity(predicted, after, inverse, valid, beta)
        total = tf.reduce_sum(loss)
    for t in range(STEPS):
        for b in range(BATCH):
            forward = sum((float(predicted[t, b, i]) - float(after[t, b, i])) ** 2 for i in range(FEATURES)) / 2
            assert float(error[t, b]) == pytest.approx(forward if valid[t, b] else 0.0)
            both = beta * forward + (1 - beta) * inverse[t, b]
            assert float(loss[t, b]) == pytest.approx(both if valid[t, b] else 0.0)
    difference = (predicted.numpy() - after.numpy()) * valid[..., np.newaxis]
    of_predicted, of_features = tape.gradient(total, (predicted, after))
    np.testing.assert_allclose(of_predicted, beta * difference)
    np.testing.assert_allclose(of_features, -beta * difference)


def test_the_inverse_loss_is_that_of_choices_and_numbers():
    rng = np.random.default_rng(3)
    logits, choices = rng.normal(size=(5, 2, 3)), rng.integers(3, size=(5, 2))
    told, numbers = rng.normal(size=(2, 5, 4))
    for n, loss in enumerate(inverse_loss(logits, choices, told, numbers).numpy()):
        expected = sum((told[n] - numbers[n]) ** 2) / 2
        for k in range(2):
            expected += np.log(sum(np.exp(logits[n, k]))) - logits[n, k, choices[n, k]]
        assert loss == pytest.approx(expected)
    whole = inverse_loss(logits, choices, (), ()) + inverse_loss((), (), told, numbers)
    np.testing.assert_allclose(whole, inverse_loss(logits, choices, told, numbers))


def continued(values, last, valid, t, b):
    """The value at t, where that of an ignored action is the one of the next observation."""
    while t < len(valid) and not valid[t, b]:
        t += 1
    # The first observation of the next episode is not in the sequence.
    return values[t - 1 if t == len(valid) and last[t, b] else t, b]


def non_episodic_advantages(values, bonus, timesteps, lambda_):
    """Sums of TD errors to the end of the sequence, which continue through ends of episodes."""
    first, last, discount = timesteps
    steps, batch = bonus.shape
    valid = np.array([[is_experience(first, last, discount, t, b) for b in range(batch)] for t in range(steps)])
    advantages = np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            weight = 1.0
            for t in range(s, steps) if valid[s, b] else ():
                if valid[t, b]:
                    delta = bonus[t, b] + GAMMA * continued(values, last, valid, t + 1, b)
                    advantages[s, b] += weight * (delta - continued(values, last, valid, t, b))
                weight *= lambda_ * (GAMMA if valid[t, b] else 1.0)
    return advantages, valid


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_sums_of_bonuses_continue_in_the_next_episode(seed, lambda_):
    rng = np.random.default_rng(seed)
    steps, batch = 12, 24
    timesteps = first, last, discount = random_timesteps(rng, steps, batch)
    values, bonus = rng.normal(size=(steps + 1, batch)), rng.random((steps, batch))
    valid = valid_transitions(first, last, discount)
    # Episodes end inside of sequences and with them, and final observations are lost.
    assert last[-1].any() and last[:-1].any() and (~valid & ~last[:-1]).any()
    bonus[~valid] = np.nan
    expected, is_valid = non_episodic_advantages(values, bonus, timesteps, lambda_)
    np.testing.assert_array_equal(valid, is_valid)
    taken = non_episodic(values, bonus, valid, last, GAMMA)._asdict()
    of_gae = gae(**taken, lambda_=lambda_)
    np.testing.assert_allclose(of_gae.advantages.numpy()[valid], expected[valid], atol=1e-12)
    np.testing.assert_allclose(of_gae.targets.numpy()[valid], (values[:-1] + expected)[valid], atol=1e-12)
    # On-policy, V-trace's targets are the same.
    of_vtrace = vtrace(**taken, log_rho_t=np.zeros((steps, batch)), lambda_=lambda_)
    np.testing.assert_allclose(of_vtrace.vs.numpy()[valid], (values[:-1] + expected)[valid], atol=1e-12)


def test_values_of_final_observations_do_not_matter():
    rng = np.random.default_rng(5)
    first, last, discount = random_timesteps(rng, 12, 24)
    values, bonus = rng.normal(size=(13, 24)), rng.random((12, 24))
    valid = valid_transitions(first, last, discount)
    one = gae(**non_episodic(values, bonus, valid, last, GAMMA)._asdict(), lambda_=0.8)
    other = gae(**non_episodic(np.where(last, 1e3, values), bonus, valid, last, GAMMA)._asdict(), lambda_=0.8)
    np.testing.assert_allclose(one.advantages.numpy()[valid], other.advantages.numpy()[valid])


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="same shape"):
        distillation(np.zeros((2, 3, 4)), np.zeros((2, 3, 5)), np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="same shape"):
        non_episodic(np.zeros((3, 3)), np.zeros((2, 2)), np.ones((2, 3), bool), np.zeros((3, 3), bool), GAMMA)
