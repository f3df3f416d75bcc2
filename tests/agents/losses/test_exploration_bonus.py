"""Exploration bonuses against loops over numbers, written from the papers."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from episodes import is_experience, random_timesteps

from callboard.agents.losses.exploration_bonus import (
    curiosity,
    distillation,
    inverse_loss,
    non_episodic,
    row_weights,
    weight_ladder,
)
from callboard.agents.losses.gae import gae
from callboard.agents.losses.vtrace import vtrace
from callboard.transitions import valid_transitions

STEPS, BATCH, FEATURES = 9, 6, 4
GAMMA = 0.9


def features(rng):
    return rng.normal(size=(STEPS, BATCH, FEATURES))


def some_valid(rng):
    return rng.random((STEPS, BATCH)) < 0.6


@pytest.mark.parametrize("slots", [2, 3, 16])
def test_weights_are_spread_over_environments_as_in_never_give_up(slots):
    expected = []
    for slot in range(slots):
        j = slots - 1 - slot
        if j in (0, slots - 1):
            expected.append(0.5 * (j != 0))
        else:
            expected.append(0.5 / (1 + math.exp(-10 * (2 * j - (slots - 2)) / (slots - 2))))
    weights = weight_ladder(slots, 0.5)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    assert weights[0] == 0.5 and weights[-1] == 0 and (np.diff(weights) < 0).all()


@pytest.mark.parametrize("rows", [2, 3, 32, 512])
def test_every_part_of_a_batch_has_weights_of_all_sizes(rows):
    weights = row_weights(rows, 0.5)
    np.testing.assert_array_equal(np.sort(weights)[::-1], weight_ladder(rows, 0.5))
    if rows >= 32:
        for part in np.split(weights, 4):
            assert part.min() < 0.01 and part.max() > 0.49 and 0.2 < part.mean() < 0.3


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


def non_episodic_advantages(values, bonus, timesteps, lambda_, log_rho=None, clip=1.0):
    """Sums of corrected TD errors over the valid transitions alone, one after the other; and which are valid."""
    first, last, discount = timesteps
    steps, batch = bonus.shape
    valid = np.array([[is_experience(first, last, discount, t, b) for b in range(batch)] for t in range(steps)])
    sums = np.zeros((steps, batch))
    for b in range(batch):
        # Where a sequence ends with an episode, the first observation of the next one is not in it.
        behind = values[-2 if last[-1, b] else -1, b]
        total = 0.0
        for t in reversed(np.flatnonzero(valid[:, b])):
            rho = 1.0 if log_rho is None else min(clip, np.exp(log_rho[t, b]))
            total = rho * (bonus[t, b] + GAMMA * behind - values[t, b]) + GAMMA * lambda_ * rho * total
            sums[t, b], behind = total, values[t, b]
    return sums, valid


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
    of_gae = non_episodic(functools.partial(gae, lambda_=lambda_), values, bonus, valid, last, GAMMA)
    np.testing.assert_allclose(of_gae.advantages.numpy()[valid], expected[valid], atol=1e-12)
    np.testing.assert_allclose(of_gae.targets.numpy()[valid], (values[:-1] + expected)[valid], atol=1e-12)
    log_rho = np.where(valid, rng.normal(size=(steps, batch)), np.inf)
    expected, _ = non_episodic_advantages(values, bonus, timesteps, lambda_, log_rho, clip=0.8)
    clipped = functools.partial(vtrace, lambda_=lambda_, clip_rho=0.8, clip_c=0.8)
    of_vtrace = non_episodic(clipped, values, bonus, valid, last, GAMMA, log_rho_t=log_rho)
    np.testing.assert_allclose(of_vtrace.vs.numpy()[valid], (values[:-1] + expected)[valid], atol=1e-12)


@pytest.mark.parametrize("ending", [0.0, 1.0], ids=["termination", "time limit"])
def test_an_episode_counts_the_same_with_and_without_its_final_observation(ending):
    """One stream of transitions, whose episode ends after the fourth: reset in the same step, and in the next."""
    rng = np.random.default_rng(4)
    values, bonus = rng.normal(size=(9, 1)), rng.random((8, 1))
    first, last, discount = np.zeros((9, 1), bool), np.zeros((9, 1), bool), np.ones((8, 1))
    first[4], discount[3] = True, 0.0
    # With a time limit, the transition without its final observation would not be valid.
    estimate = functools.partial(gae, lambda_=0.5)
    same = non_episodic(estimate, values, bonus, valid_transitions(first, last, discount), last, GAMMA)
    values, bonus = np.insert(values, 4, 99.0, axis=0), np.insert(bonus, 4, np.nan, axis=0)
    last, discount = np.insert(last, 4, True, axis=0), np.insert(discount, 4, ending, axis=0)
    discount[3], first = ending, np.insert(first, 4, False, axis=0)
    following = non_episodic(estimate, values, bonus, valid_transitions(first, last, discount), last, GAMMA)
    np.testing.assert_allclose(np.delete(following.advantages, 4, axis=0), same.advantages, atol=1e-12)


def test_values_of_final_observations_do_not_matter():
    rng = np.random.default_rng(5)
    first, last, discount = random_timesteps(rng, 12, 24)
    values, bonus = rng.normal(size=(13, 24)), rng.random((12, 24))
    valid = valid_transitions(first, last, discount)
    estimate = functools.partial(gae, lambda_=0.8)
    one = non_episodic(estimate, values, bonus, valid, last, GAMMA)
    other = non_episodic(estimate, np.where(last, 1e3, values), bonus, valid, last, GAMMA)
    np.testing.assert_allclose(one.advantages.numpy()[valid], other.advantages.numpy()[valid])


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="same shape"):
        distillation(np.zeros((2, 3, 4)), np.zeros((2, 3, 5)), np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="same shape"):
        non_episodic(gae, np.zeros((3, 3)), np.zeros((2, 2)), np.ones((2, 3), bool), np.zeros((3, 3), bool), GAMMA)
