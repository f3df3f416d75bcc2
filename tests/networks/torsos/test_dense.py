"""Hidden layers, with and without normalization, against NumPy."""

import numpy as np

from callboard.networks.torsos.dense import LINEAR, Layers, hidden_layers


def outputs(layers, features):
    for layer in layers:
        features = layer(features)
    return features.numpy()


def test_the_inputs_of_activations_are_normalized():
    features = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    layers = hidden_layers(Layers((6, 3), "tanh", True))
    outputs(layers, features)
    rng = np.random.default_rng(1)
    for layer in layers:
        layer.set_weights([rng.normal(size=weight.shape) for weight in layer.get_weights()])
    expected = features.astype(np.float64)
    for dense, norm in ((layers[0], layers[1]), (layers[3], layers[4])):
        (kernel, bias), (scale, offset) = dense.get_weights(), norm.get_weights()
        hidden = expected @ kernel + bias
        mean = hidden.mean(axis=-1, keepdims=True)
        variance = ((hidden - mean) ** 2).mean(axis=-1, keepdims=True)
        expected = np.tanh((hidden - mean) / np.sqrt(variance + 1e-5) * scale + offset)
    np.testing.assert_allclose(outputs(layers, features), expected, atol=1e-5)


def test_without_normalization_there_is_one_layer_for_each_size():
    layers = hidden_layers(Layers((6, 3)))
    assert [layer.name for layer in layers] == ["dense_0", "dense_1"]
    assert outputs(layers, np.ones((2, 4), np.float32)).min() >= 0
    assert hidden_layers(LINEAR) == []
