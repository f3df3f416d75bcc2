"""Layers of logits over atoms keep their distributions when the atoms move."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.heads.heads import DistributionalQHead, MLPHead
from callboard.networks.heads.moved_atoms import move_atoms, moved_logits
from callboard.networks.stochastic_layers import NoisyLayers
from callboard.networks.torsos.dense import Layers

BEFORE = np.linspace(-3.0, 63.0, 51)


def probabilities(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("low, high", [(-3, 97), (-30, 63), (-3, 30), (-4.5, 94.5), (-3, 64)])
@pytest.mark.parametrize("deviation", [0.5, 4.0])
def test_means_move_by_less_than_an_atom(low, high, deviation):
    after = np.linspace(low, high, 51)
    centers = np.linspace(max(low, -3) + 3 * deviation, min(high, 63) - 3 * deviation, 40)
    logits = -0.5 * np.square((BEFORE - centers[:, np.newaxis]) / deviation)
    matrix, offset = moved_logits(tf.constant(BEFORE), tf.constant(after))
    moved = probabilities(logits @ matrix.numpy().T + offset.numpy()) @ after
    spacing = max(after[1] - after[0], BEFORE[1] - BEFORE[0])
    assert np.abs(moved - probabilities(logits) @ BEFORE).max() < spacing


def test_logits_are_linear_between_atoms_and_fall_beyond():
    after = np.linspace(-10.0, 100.0, 51)
    logits = np.random.default_rng(0).normal(size=51)
    matrix, offset = moved_logits(tf.constant(BEFORE), tf.constant(after))
    got = matrix.numpy() @ logits + offset.numpy()
    for number, value in enumerate(after):
        expected = np.interp(value, BEFORE, logits)
        beyond = max(BEFORE[0] - value, value - BEFORE[-1], 0.0) / (after[1] - after[0])
        np.testing.assert_allclose(got[number], expected - min(2 * beyond, np.log(51 / 0.05)), rtol=1e-9)
    # What can be learned there begins with a small part of the probability.
    assert probabilities(got)[after > 63].sum() < 0.25 * probabilities(got)[after <= 63][-1] + 0.01


@pytest.mark.slow("daily")
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_head_of_several_actions(dueling, noisy):
    before, after = np.linspace(-1.0, 5.0, 11), np.linspace(-1.0, 8.0, 11)
    head = DistributionalQHead(3, 11, Layers(make_noisy=NoisyLayers(0.5) if noisy else None), dueling)
    features = tf.random.stateless_normal((4, 7), (0, 1))
    logits = head(features).numpy()
    matrix, offset = (part.numpy() for part in moved_logits(tf.constant(before), tf.constant(after)))
    parent = tf.Module()
    parent.head = head
    move_atoms(parent, tf.constant(before), tf.constant(after), tf.constant(False))
    np.testing.assert_array_equal(head(features), logits)
    move_atoms(parent, tf.constant(before), tf.constant(after), tf.constant(True))
    expected = probabilities(logits @ matrix.T + offset)
    np.testing.assert_allclose(probabilities(head(features).numpy()), expected, rtol=1e-4, atol=1e-6)


def test_other_layers_stay():
    head = MLPHead(11)
    values = head(tf.ones((1, 3))).numpy()
    move_atoms(head, tf.linspace(0.0, 1.0, 11), tf.linspace(0.0, 2.0, 11), tf.constant(True))
    np.testing.assert_array_equal(head(tf.ones((1, 3))), values)
