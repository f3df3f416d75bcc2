"""Noisy layers: their outputs against a loop over numbers, and what their noise depends on."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.random_streams import Stream, stream_seed
from callboard.networks.stateless_random import standard_normal
from callboard.networks.stochastic_layers import NoisyDense, NoisyLayers, randomness, sampling

BATCH, INPUTS, UNITS = 6, 3, 2
SEED = np.array([5, 7])


@pytest.fixture
def layer():
    layer = NoisyDense(UNITS, "relu", sigma=0.4, number=1)
    layer(tf.zeros((1, INPUTS)))
    rng = np.random.default_rng(0)
    for variable in layer.variables:
        variable.assign(rng.normal(size=variable.shape))
    return layer


def inputs() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(BATCH, INPUTS)).astype(np.float32)


def test_outputs_are_those_of_weights_with_factorized_noise(layer):
    x, slots = inputs(), np.arange(10, 10 + BATCH)
    with sampling(SEED, slots):
        found = layer(x)
    weights = {variable.name.split("/")[-1].split(":")[0]: variable.numpy() for variable in layer.variables}
    normal = standard_normal(
        stream_seed(SEED, Stream.NOISY_LAYER, 1), Stream.NOISY_LAYER, slots, (INPUTS + UNITS,)
    ).numpy()
    f = np.sign(normal) * np.sqrt(np.abs(normal))
    for b in range(BATCH):
        for j in range(UNITS):
            total = weights["bias"][j] + weights["bias_sigma"][j] * f[b, INPUTS + j]
            for i in range(INPUTS):
                noise = f[b, i] * f[b, INPUTS + j]
                total += (weights["kernel"][i, j] + weights["kernel_sigma"][i, j] * noise) * x[b, i]
            np.testing.assert_allclose(found[b, j], max(0.0, total), rtol=1e-4, atol=1e-5)


def test_without_a_context_or_a_seed_there_is_no_noise(layer):
    kernel, bias = layer.variables[:2]
    expected = np.maximum(inputs() @ kernel.numpy() + bias.numpy(), 0)
    np.testing.assert_allclose(layer(inputs()), expected, rtol=1e-5)
    with sampling(None, np.arange(BATCH)):
        np.testing.assert_allclose(layer(inputs()), expected, rtol=1e-5)
        assert randomness() is None


def test_noise_depends_on_seed_layer_and_element_not_on_the_batch(layer):
    x = np.tile(inputs()[:1], (BATCH, 1))
    with sampling(SEED, np.arange(BATCH)):
        whole = layer(x).numpy()
    with sampling(SEED, np.array([3, 1])):
        np.testing.assert_allclose(layer(x[:2]), whole[[3, 1]], rtol=1e-5)
    with sampling(np.stack([SEED, SEED + 1]), np.array([3, 3])):
        first, second = layer(x[:2]).numpy()
    np.testing.assert_allclose(first, whole[3], rtol=1e-5)
    assert len({tuple(row) for row in (*whole, second)}) > BATCH // 2
    other = NoisyDense(UNITS, "relu", number=2)
    other(x)
    for mine, its in zip(layer.variables, other.variables, strict=True):
        its.assign(mine)
    with sampling(SEED, np.arange(BATCH)):
        assert not np.allclose(other(x), whole)


def test_one_noise_for_all_and_one_noise_for_several_rows(layer):
    x = np.tile(inputs()[:1], (BATCH, 1))
    with sampling(SEED, np.arange(BATCH), same_noise=True):
        assert np.ptp(layer(x), axis=0).max() == 0
    with sampling(SEED, np.arange(2)):
        rows = layer(x).numpy()
    assert np.ptp(rows[:3], axis=0).max() == np.ptp(rows[3:], axis=0).max() == 0 and (rows[0] != rows[3]).any()


def test_layers_begin_as_in_the_paper_and_are_numbered():
    make = NoisyLayers(0.5)
    layers = [make(4, name="a"), make(4)]
    for layer in layers:
        layer(tf.zeros((1, 16)))
        kernel, bias, kernel_sigma, bias_sigma = layer.variables
        assert (np.abs(kernel) <= 0.25).all() and (np.abs(bias) <= 0.25).all()
        assert (kernel_sigma.numpy() == 0.125).all() and (bias_sigma.numpy() == 0.125).all()
        layer.set_weights([np.zeros((16, 4)), np.zeros(4), np.ones((16, 4)), np.ones(4)])
    with sampling(SEED, np.arange(2)):
        first, second = (layer(tf.ones((2, 16))).numpy() for layer in layers)
    assert not np.allclose(first, second)
