"""Implicit quantile heads: their outputs against a loop over numbers, and which fractions they take."""

import numpy as np
import tensorflow as tf

from callboard.networks.heads import DuelingQHead, QHead
from callboard.networks.heads.implicit_quantiles import ImplicitQuantileHead
from callboard.networks.random_streams import Stream
from callboard.networks.stateless_random import uniform
from callboard.networks.stochastic_layers import NoisyLayers, sampling
from callboard.networks.torsos.dense import Layers

BATCH, FEATURES, NUMBER, ACTIONS = 4, 5, 3, 2
SEED, SLOTS = np.array([1, 2]), np.arange(BATCH)


def features() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype(np.float32)


def test_outputs_are_those_of_the_paper():
    inner = QHead(ACTIONS)
    head = ImplicitQuantileHead(NUMBER, inner)
    head(features())
    with sampling(SEED, SLOTS):
        values, fractions = (output.numpy() for output in head(features()))
    np.testing.assert_array_equal(fractions, uniform(SEED, Stream.QUANTILE_FRACTION, SLOTS, (NUMBER,)))
    (kernel, bias), (out, out_bias) = (
        [variable.numpy() for variable in part.variables] for part in (head._embedding, inner._layers[0])
    )
    for b in range(BATCH):
        for n in range(NUMBER):
            phi = np.zeros(FEATURES)
            for j in range(FEATURES):
                total = sum(np.cos(np.pi * i * fractions[b, n]) * kernel[i, j] for i in range(64)) + bias[j]
                phi[j] = max(0.0, total)
            np.testing.assert_allclose(values[b, :, n], (features()[b] * phi) @ out + out_bias, rtol=1e-3, atol=1e-4)


def test_fractions_are_midpoints_without_sampling():
    values, fractions = ImplicitQuantileHead(NUMBER, DuelingQHead(ACTIONS))(features())
    np.testing.assert_allclose(fractions, np.tile([1 / 6, 1 / 2, 5 / 6], (BATCH, 1)), rtol=1e-6)
    assert values.shape == (BATCH, ACTIONS, NUMBER)


def test_all_fractions_of_an_element_have_its_noise_and_its_legal_actions():
    head = ImplicitQuantileHead(NUMBER, DuelingQHead(ACTIONS, Layers(make_noisy=NoisyLayers(0.5))))
    head(features())
    same = np.tile(features()[:1], (BATCH, 1))
    head._embedding.set_weights([np.zeros((64, FEATURES)), np.ones(FEATURES)])
    with sampling(SEED, SLOTS):
        values = head(same, tf.constant([[True, True]] * BATCH)).values.numpy()
    # The embedding does not depend on the fraction, so all that can differ is the noise.
    np.testing.assert_allclose(values, np.tile(values[:, :, :1], (1, 1, NUMBER)), rtol=1e-5)
    assert len(np.unique(values[:, 0, 0].round(5))) == BATCH
