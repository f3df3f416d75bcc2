"""DMPO's Gaussian head and dual variables: how they begin, and that duals stay positive."""

import numpy as np
import tensorflow as tf

from callboard.networks.actor_critics.mpo_networks import GaussianHead, MpoDuals
from callboard.networks.torsos.dense import Layers


def test_the_first_policy_is_close_to_the_middle_with_the_given_standard_deviation():
    head = GaussianHead(2, Layers((8,)), initial_std=0.7)
    policy = head(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))
    np.testing.assert_allclose(policy.mean, 0, atol=0.1)
    np.testing.assert_allclose(np.exp(policy.log_std), 0.7, atol=0.1)


def test_duals_are_positive_however_far_they_are_pushed():
    duals = MpoDuals(2, temperature=1.0, alpha_mean=2.0, alpha_stddev=1000.0)
    np.testing.assert_allclose(duals.temperature, np.log1p(np.e), rtol=1e-6)
    np.testing.assert_allclose(duals.penalty_temperature, duals.temperature)
    np.testing.assert_allclose(duals.alpha_mean, [np.log1p(np.exp(2))] * 2, rtol=1e-6)
    np.testing.assert_allclose(duals.alpha_stddev, [1000.0] * 2)
    optimizer = tf.keras.optimizers.SGD(1.0, jit_compile=False)
    optimizer.apply_gradients([(tf.fill(one.shape, 1e6), one) for one in duals.trainable_variables])
    for dual in (duals.temperature, duals.alpha_mean, duals.alpha_stddev):
        assert (dual.numpy() > 0).all() and (dual.numpy() < 1e-6).all()
    assert all((variable.numpy() == -18).all() for variable in duals.trainable_variables)
