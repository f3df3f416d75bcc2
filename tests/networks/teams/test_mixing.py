"""Mixers: sums, and networks that are monotonic in the members' values and depend on the state."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.teams.mixing import MonotonicMixer, SumMixer, make_mixer

RNG = np.random.default_rng(0)


def test_vdn_is_a_sum_whatever_the_state():
    values = RNG.normal(size=(4, 3))
    np.testing.assert_allclose(SumMixer()(tf.constant(values), None), values.sum(axis=1))
    assert not SumMixer().variables


@pytest.mark.parametrize("hypernetwork_size", [0, 6])
def test_qmix_is_monotonic_in_every_value_and_its_slopes_depend_on_the_state(hypernetwork_size):
    mixer = MonotonicMixer(3, 5, size=4, hypernetwork_size=hypernetwork_size)
    values = tf.Variable(3 * RNG.normal(size=(200, 3)), dtype=tf.float32)
    state = tf.constant(RNG.normal(size=(200, 5)), tf.float32)
    with tf.GradientTape() as tape:
        total = mixer(values, state)
    slopes = tape.gradient(total, values).numpy()
    assert total.shape == (200,)
    assert np.all(slopes >= 0) and np.std(slopes) > 0.01
    assert len(mixer.trainable_variables) == (14 if hypernetwork_size else 10)


def test_a_mixer_is_made_by_its_name():
    assert isinstance(make_mixer("vdn", 2, 3, 4, 0), SumMixer)
    assert isinstance(make_mixer("qmix", 2, 3, 4, 0), MonotonicMixer)
