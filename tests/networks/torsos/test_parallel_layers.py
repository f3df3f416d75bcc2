"""Layers of several networks at once, batch renormalization and residual blocks, against loops over numbers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.heads.heads import ParallelHeads
from callboard.networks.torsos import batch_renormalization
from callboard.networks.torsos.batch_renormalization import BatchRenormalization, batch_statistics
from callboard.networks.torsos.dense import Layers, hidden_layers


@pytest.mark.slow("daily")
@pytest.mark.parametrize("layer_norm", [False, True, "simba"])
def test_networks_that_are_computed_together_are_those_one_by_one(layer_norm):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    heads = ParallelHeads(3, 2, Layers((4, 4), "relu", layer_norm))
    outputs = heads(x)
    assert outputs.shape == (3, 5, 2)
    single = [*hidden_layers(Layers((4, 4), "relu", layer_norm)), tf.keras.layers.Dense(2)]

    def alone(x):
        for layer in single:
            x = layer(x)
        return x

    alone(x)
    own = [variable for layer in single for variable in layer.trainable_variables]
    for network in range(3):
        for variable, together in zip(own, heads.trainable_variables, strict=True):
            variable.assign(tf.reshape(together[network], variable.shape))
        np.testing.assert_allclose(outputs[network], alone(x), rtol=1e-5, atol=1e-6)
    kernels = heads.trainable_variables[0].numpy()
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-3


@pytest.mark.parametrize("passes", [0, batch_renormalization.WARM_UP])
def test_batch_renormalization_is_that_of_the_paper(passes):
    rng = np.random.default_rng(1)
    x = rng.normal(3.0, 2.0, size=(2, 6, 4)).astype(np.float32)
    counted = np.array([True, False, True, True, False, True])
    layer = BatchRenormalization()
    before = layer(x)
    np.testing.assert_allclose(before, x / np.sqrt(1 + 1e-3), rtol=1e-5)
    mean, variance = rng.normal(size=(2, 1, 4)), rng.uniform(0.5, 2.0, size=(2, 1, 4))
    layer._mean.assign(mean)
    layer._variance.assign(variance)
    layer._passes.assign(float(passes))
    with batch_statistics(counted):
        found = layer(x).numpy()
    for k in range(2):
        for f in range(4):
            column = x[k, :, f].astype(np.float64)
            own = column[counted]
            center, deviation = own.mean(), np.sqrt(own.var() + 1e-3)
            running = np.sqrt(variance[k, 0, f] + 1e-3)
            r = np.clip(deviation / running, 1 / 3, 3) if passes else 1.0
            d = np.clip((center - mean[k, 0, f]) / running, -5, 5) if passes else 0.0
            for n in range(6):
                np.testing.assert_allclose(
                    found[k, n, f], (column[n] - center) / deviation * r + d, rtol=1e-3, atol=1e-4
                )
            np.testing.assert_allclose(layer._mean[k, 0, f], 0.99 * mean[k, 0, f] + 0.01 * center, rtol=1e-4)
            np.testing.assert_allclose(layer._variance[k, 0, f], 0.99 * variance[k, 0, f] + 0.01 * own.var(), rtol=1e-4)
    assert float(layer._passes) == passes + 1
    kept = [variable.numpy() for variable in layer.weights]
    with batch_statistics(np.zeros(6, bool)):
        assert np.isfinite(layer(x)).all()
    for variable, value in zip(layer.weights, kept, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg="a batch of which nothing counts")


@pytest.mark.slow("daily")
def test_a_residual_block_adds_to_its_inputs():
    x = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    block = hidden_layers(Layers((4,), "relu", "simba"))[1]
    found = block(x).numpy()
    norm, hidden, output = block._layers
    for n in range(5):
        normalized = (x[n] - x[n].mean()) / np.sqrt(x[n].var() + 1e-5) * norm.gamma.numpy() + norm.beta.numpy()
        inner = np.maximum(normalized @ hidden.kernel.numpy() + hidden.bias.numpy(), 0)
        np.testing.assert_allclose(
            found[n], x[n] + inner @ output.kernel.numpy() + output.bias.numpy(), rtol=1e-4, atol=1e-5
        )
    assert hidden.kernel.shape == (4, 16)
