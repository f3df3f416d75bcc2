"""Random shifts against a loop that pads and crops."""

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs
from gpu_kernels import nodes_of, without_kernel

from callboard.networks.random_streams import Stream
from callboard.networks.stateless_random import uniform
from callboard.networks.torsos.augmentation import random_shift, shifted_observations

SEED, PIXELS = np.array([3, 4]), 4


def images(batch=20, channels=2):
    return np.random.default_rng(0).integers(0, 256, (batch, 7, 9, channels)).astype(np.uint8)


def test_an_image_is_padded_with_its_edges_and_cropped_at_random():
    given = images()
    found = random_shift(given, SEED, np.arange(20), PIXELS)
    assert found.dtype == np.uint8 and found.shape == given.shape
    offsets = np.floor(uniform(SEED, Stream.SHIFT, np.arange(20), (2,), np.float64).numpy() * (2 * PIXELS + 1)).astype(
        int
    )
    for b in range(20):
        padded = np.pad(given[b], ((PIXELS, PIXELS), (PIXELS, PIXELS), (0, 0)), mode="edge")
        y, x = offsets[b]
        np.testing.assert_array_equal(found[b], padded[y : y + 7, x : x + 9])
    assert offsets.min() == 0 and offsets.max() == 2 * PIXELS
    np.testing.assert_array_equal(random_shift(given, SEED, np.arange(20), 0), given)


def test_a_shift_depends_on_the_seed_and_the_index_alone():
    given = images()
    whole = random_shift(given, SEED, np.arange(20), PIXELS).numpy()
    np.testing.assert_array_equal(random_shift(given[[7, 3]], SEED, np.array([7, 3]), PIXELS), whole[[7, 3]])
    assert (random_shift(given, SEED + 1, np.arange(20), PIXELS).numpy() != whole).any(axis=(1, 2, 3)).mean() > 0.8


def test_only_the_images_of_an_observation_are_shifted():
    spec = {"eye": dm_specs.BoundedArray((7, 9, 2), np.uint8, 0, 255), "body": dm_specs.Array((3,), np.float32)}
    given = {"eye": images(), "body": np.ones((20, 3), np.float32)}
    found = shifted_observations(spec, given, SEED, np.arange(20), PIXELS)
    assert found["body"] is given["body"]
    np.testing.assert_array_equal(found["eye"], random_shift(given["eye"], SEED, np.arange(20), PIXELS))


def test_images_are_shifted_on_a_gpu():
    shifts = tf.function(lambda given, index: random_shift(given, SEED, index, PIXELS), autograph=False)
    graph = shifts.get_concrete_function(tf.TensorSpec((None, 7, 9, 3), tf.uint8), tf.TensorSpec((None,), tf.int32))
    assert without_kernel(nodes_of(graph)) == set()
