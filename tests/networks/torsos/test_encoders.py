"""Torsos of a policy and its critics: what they share, and what they do not."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.torsos.encoders import Encoders
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(2))
IMAGES = SPEC._replace(observation=specs.BoundedArray((12, 12, 3), np.uint8, 0, 255))
VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_vectors_pass_unchanged_unless_they_are_normalized_by_one_normalizer():
    np.testing.assert_array_equal(Encoders(SPEC).make()(VECTORS), VECTORS)
    encoders = Encoders(SPEC, normalize_observations=True)
    one, other = encoders.make(), encoders.make()
    encoders.normalizer.update(10 + 3 * VECTORS, leading=1)
    np.testing.assert_allclose(one(VECTORS), encoders.normalizer(VECTORS))
    np.testing.assert_array_equal(one(VECTORS), other(VECTORS))


def test_each_torso_has_variables_of_its_own_and_the_settings_of_all():
    encoders = Encoders(IMAGES, filters=[[4, 3, 1]], image_features=7)
    images = np.zeros((2, 12, 12, 3), np.uint8)
    one, other = encoders.make(), encoders.make()
    assert one(images).shape == other(images).shape == (2, 7)
    assert one.variables and not {id(v) for v in one.variables} & {id(v) for v in other.variables}


def test_any_layer_can_be_normalized_and_is_made_for_observations_without_bounds():
    made_for = []

    def make(spec):
        made_for.append(spec.observation)
        return tf.keras.layers.Flatten()

    bounded = SPEC._replace(observation=specs.BoundedArray((3,), np.float32, -1, 1))
    encoders = Encoders(bounded, normalize_observations=True)
    assert encoders.normalized(make)(VECTORS).shape == (5, 3)
    assert Encoders(bounded).normalized(make)(VECTORS).shape == (5, 3)
    assert [hasattr(spec, "minimum") for spec in made_for] == [False, True]


def test_one_layer_for_all_networks_is_refused():
    with pytest.raises(CallboardError, match="a torso each: give a factory of torsos"):
        Encoders(SPEC, tf.keras.layers.Dense(3))
