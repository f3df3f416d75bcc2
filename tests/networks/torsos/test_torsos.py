"""Torsos: their layers by hand, the smallest images, and which part of an observation goes where."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.torsos import (
    ConvTorso,
    MLPTorso,
    NatureTorso,
    ObservationTorso,
    check_filters,
    check_nature_images,
)
from callboard.networks.torsos.dense import LINEAR, Layers

VECTOR = specs.Array((3,), np.float32)
CHOICE = specs.DiscreteArray(4)
IMAGE = specs.BoundedArray((5, 6, 2), np.uint8, 0, 255)


def test_an_mlp_takes_all_observations_flat_and_choices_as_one_hot():
    torso = MLPTorso({"b": VECTOR, "a": CHOICE}, Layers((8, 2), "tanh"))
    vector = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    features = torso({"b": vector, "a": np.arange(6, dtype=np.int32) % 4})
    # In the order of the names.
    expected = np.concatenate([np.eye(4)[np.arange(6) % 4], vector], axis=1)
    kernel_1, bias_1, kernel_2, bias_2 = torso.get_weights()
    expected = np.tanh(np.tanh(expected @ kernel_1 + bias_1) @ kernel_2 + bias_2)
    np.testing.assert_allclose(features, expected, atol=1e-5)
    np.testing.assert_allclose(kernel_2.T @ kernel_2, 2 * np.eye(2), atol=1e-5)
    assert not bias_1.any() and not bias_2.any()


def test_without_layers_a_vector_is_its_own_features():
    torso = MLPTorso(VECTOR, LINEAR)
    vector = np.array([[1.0, -2.0, 30.0]], np.float32)
    np.testing.assert_array_equal(torso(vector), vector)
    assert torso.trainable_variables == []


def test_the_size_of_the_nature_network_is_that_of_the_paper():
    """Weights counted by hand from the paper, for 84x84x4 images."""
    nature = NatureTorso()
    assert nature(np.zeros((1, 84, 84, 4), np.uint8)).shape == (1, 512)
    convolutions = 8 * 8 * 4 * 32 + 32 + 4 * 4 * 32 * 64 + 64 + 3 * 3 * 64 * 64 + 64
    assert nature.count_params() == convolutions + 7 * 7 * 64 * 512 + 512


def test_the_nature_network_scales_bytes_and_not_floats():
    nature = NatureTorso()
    image = np.random.default_rng(0).integers(0, 256, (2, 36, 40, 1)).astype(np.uint8)
    np.testing.assert_allclose(nature(image), nature((image / 255).astype(np.float32)), atol=1e-5)
    assert np.abs(nature(image) - nature(image.astype(np.float32))).max() > 0.1


@pytest.mark.parametrize("height, width", [(35, 84), (84, 35), (12, 12)])
def test_images_that_are_too_small_for_the_nature_network_are_refused(height, width):
    spec = {"map": specs.Array((height, width, 3), np.float32), "body": VECTOR}
    with pytest.raises(CallboardError) as caught:
        check_nature_images(spec)
    expected = f"torso 'nature' needs images of at least 36x36, not {height}x{width}; use 'impala'"
    assert str(caught.value) == expected


def test_the_smallest_images_have_an_output():
    check_nature_images((VECTOR, specs.Array((36, 36, 3), np.float32)))
    assert NatureTorso()(np.zeros((1, 36, 36, 3), np.uint8)).shape == (1, 512)


def test_convolutions_with_the_filters_of_nature_are_the_nature_network():
    image = np.random.default_rng(0).integers(0, 256, (2, 40, 36, 3)).astype(np.uint8)
    nature, own = NatureTorso(features=16), ConvTorso(((32, 8, 4), (64, 4, 2), (64, 3, 1)), features=16)
    nature(image), own(image)
    own.set_weights(nature.get_weights())
    np.testing.assert_array_equal(own(image), nature(image))


def test_convolutions_have_the_activation():
    image = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    assert float(tf.reduce_min(ConvTorso(((4, 3, 1),), "tanh", features=8)(image))) < 0
    assert float(tf.reduce_min(ConvTorso(((4, 3, 1),), "relu", features=8)(image))) >= 0


def test_filters_that_are_too_large_are_refused():
    spec = {"map": specs.Array((10, 12, 3), np.float32), "body": VECTOR}
    check_filters(spec, ((8, 4, 2), (8, 4, 1)))
    with pytest.raises(CallboardError, match=r"^filter 2 of network.filters, \[8, 5, 1\], is larger than .* 4x5: use"):
        check_filters(spec, ((8, 4, 2), (8, 5, 1)))


class Sum(tf.keras.layers.Layer):
    """Returns the sums of images over pixels, times a factor: one feature per channel."""

    def __init__(self, factor):
        super().__init__()
        self._factor = factor

    def call(self, image):
        return self._factor * tf.reduce_sum(image, axis=(1, 2))


def test_each_image_has_a_torso_and_the_rest_share_one():
    factors, vector_specs = iter((1.0, 10.0)), []

    def make_vector_torso(spec):
        vector_specs.append(spec)
        return MLPTorso(spec, LINEAR)

    spec = {"d": VECTOR, "c": IMAGE, "b": CHOICE, "a": specs.Array((2, 2, 1), np.float32)}
    torso = ObservationTorso(spec, lambda: Sum(next(factors)), make_vector_torso)
    assert vector_specs == [[CHOICE, VECTOR]] and list(factors) == []
    observation = {
        "a": np.full((1, 2, 2, 1), 0.5, np.float32),
        "b": np.array([2], np.int32),
        "c": np.tile(np.array([0, 51], np.uint8), (1, 5, 6, 1)),
        "d": np.array([[7, 8, 9]], np.float32),
    }
    # The images first: 4 pixels of 0.5, and ten times 30 pixels of 51/255 in the second channel.
    expected = [4 * 0.5, 0, 10 * 30 * 0.2, 0, 0, 1, 0, 7, 8, 9]
    np.testing.assert_allclose(torso(observation), [expected], rtol=1e-5)


def test_images_alone_have_no_torso_for_vectors():
    def fail(spec):
        raise AssertionError("there is no vector")

    torso = ObservationTorso(IMAGE, lambda: Sum(1.0), fail)
    image = np.full((3, 5, 6, 2), 255, np.uint8)
    np.testing.assert_allclose(torso(image), np.full((3, 2), 30.0))


def test_weights_of_every_part_are_trained():
    spec = (VECTOR, specs.BoundedArray((36, 36, 1), np.uint8, 0, 255))
    torso = ObservationTorso(spec, NatureTorso, lambda parts: MLPTorso(parts, Layers((4,))))
    assert torso((np.zeros((2, 3), np.float32), np.zeros((2, 36, 36, 1), np.uint8))).shape == (2, 512 + 4)
    # Kernel and bias of four layers of the image's torso, and of one of the MLP.
    assert len(torso.trainable_variables) == 2 * 4 + 2
