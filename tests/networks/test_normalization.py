"""Running statistics compared with NumPy over all observations."""

import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.networks.factory import make_torso, policy_value_network
from callboard.networks.normalization import RunningNormalizer
from callboard.specs import EnvironmentSpec


def test_statistics_are_those_of_all_batches_together():
    generator = np.random.default_rng(0)
    normalizer = RunningNormalizer({"a": specs.Array((3,), np.float32), "b": specs.Array((), np.float32)})
    batches = [
        {
            "a": (5.0 + 0.1 * generator.normal(size=(7, size, 3))).astype(np.float32),
            "b": (-40.0 * generator.random(size=(7, size))).astype(np.float32),
        }
        for size in (1, 4, 16)
    ]
    for batch in batches:
        normalizer.update({name: tf.constant(leaf) for name, leaf in batch.items()})
    result = normalizer(batches[1])
    for name, shape in (("a", (3,)), ("b", ())):
        everything = np.concatenate([batch[name].reshape(-1, *shape) for batch in batches]).astype(np.float64)
        expected = (batches[1][name] - everything.mean(0)) / everything.std(0)
        np.testing.assert_allclose(result[name], expected, atol=2e-3)


def test_what_is_masked_is_not_taken_in():
    generator = np.random.default_rng(0)
    normalizer = RunningNormalizer((specs.Array((2,), np.float32), specs.Array((), np.float32)))
    chosen = []
    for share in (0.0, 0.7, 0.0, 0.3):
        vector = (3.0 + generator.normal(size=(6, 5, 2))).astype(np.float32)
        number = (-7.0 * generator.random(size=(6, 5))).astype(np.float32)
        mask = generator.random((6, 5)) < share
        normalizer.update((tf.constant(vector), tf.constant(number)), weight=tf.constant(mask))
        chosen.append((vector[mask], number[mask]))
        if share == 0.0 and len(chosen) == 1:
            # Before the first observation.
            np.testing.assert_allclose(normalizer((vector, number))[0], vector)
    result = normalizer((vector, number))
    for index in range(2):
        everything = np.concatenate([part[index] for part in chosen]).astype(np.float64)
        expected = ((vector, number)[index] - everything.mean(0)) / everything.std(0)
        np.testing.assert_allclose(result[index], expected, atol=1e-4)


def test_nothing_is_normalized_before_the_first_update_and_other_dtypes_never():
    normalizer = RunningNormalizer((specs.Array((2,), np.float32), specs.Array((), np.int32)))
    vector, number = np.array([[3.0, -2.0]], np.float32), np.array([7], np.int32)
    result = normalizer((vector, number))
    np.testing.assert_allclose(result[0], vector)
    assert result[1] is number


def test_outliers_are_clipped():
    normalizer = RunningNormalizer(specs.Array((1,), np.float32))
    assert normalizer(np.array([[1e6]], np.float32)).numpy() == [[10.0]]


def test_statistics_are_variables_that_are_not_trained():
    normalizer = RunningNormalizer(specs.Array((1,), np.float32))
    assert len(normalizer.variables) == 3 and normalizer.trainable_variables == ()


CONSTANTS = (0.3, 0.45, 0.7, 3.7, 8.9075, 100.1, 1e4, 1e6)


@pytest.mark.parametrize("batch", [(1, 1), (5, 4), (64, 32)])
def test_constant_features_become_zero(batch):
    normalizer = RunningNormalizer(specs.Array((len(CONSTANTS),), np.float32))
    observation = np.broadcast_to(np.float32(CONSTANTS), (*batch, len(CONSTANTS)))
    for _ in range(5):
        normalizer.update(tf.constant(observation))
        np.testing.assert_allclose(normalizer(observation), np.zeros_like(observation), atol=1e-5)


@pytest.mark.parametrize(
    ("mean", "deviation"), [(1000, 0.01), (1000, 0.1), (1e4, 0.1), (1e6, 1), (-1e6, 1e3), (0, 1e-3)]
)
def test_nearly_constant_features_have_unit_variance(mean, deviation):
    generator = np.random.default_rng(0)
    normalizer = RunningNormalizer(specs.Array((3,), np.float32))
    everything = (mean + deviation * generator.normal(size=(4, 64, 32, 3))).astype(np.float32)
    for batch in everything:
        normalizer.update(tf.constant(batch))
    expected = everything.astype(np.float64)
    expected = (expected - expected.mean((0, 1, 2))) / np.sqrt(expected.var((0, 1, 2)) + 1e-8)
    result = tf.function(normalizer, autograph=False)(everything)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_statistics_follow_after_millions_of_updates():
    """A feature whose mean moves from 1e6 to 1e6 + 1 after ten million batches: float32 would not change at all."""
    generator = np.random.default_rng(0)
    normalizer = RunningNormalizer(specs.Array((), np.float32))
    values = {variable.name: variable for variable in normalizer.variables}
    count, mean, variance = (values[f"{name}:0"] for name in ("count", "mean", "variance"))
    before = 640 * 10_000_000
    count.assign(before), mean.assign(1e6), variance.assign(0.25)
    update = tf.function(normalizer.update, autograph=False)
    batches = (1e6 + 1 + 0.5 * generator.normal(size=(100, 20, 32))).astype(np.float32)
    for batch in batches:
        update(tf.constant(batch))
    assert float(count) == before + batches.size
    share, shift = batches.size / (before + batches.size), batches.mean(dtype=np.float64) - 1e6
    np.testing.assert_allclose(float(mean) - 1e6, share * shift, rtol=1e-4)
    expected = (1 - share) * 0.25 + share * batches.var(dtype=np.float64) + share * (1 - share) * shift**2
    np.testing.assert_allclose(float(variance) - 0.25, expected - 0.25, rtol=1e-3)


def test_leaves_of_other_dtypes_have_no_statistics():
    normalizer = RunningNormalizer({"image": specs.Array((64, 64, 3), np.uint8), "speed": specs.Array((), np.float32)})
    assert sum(variable.shape.num_elements() for variable in normalizer.variables) == 3
    image, speed = np.zeros((2, 3, 64, 64, 3), np.uint8), np.full((2, 3), 5, np.float32)
    normalizer.update({"image": tf.constant(image), "speed": tf.constant(speed)})
    result = normalizer({"image": image, "speed": speed})
    assert result["image"] is image and not result["speed"].numpy().any()
    nothing = RunningNormalizer(specs.Array((3,), np.uint8))
    nothing.update(tf.zeros((2, 3, 3), tf.uint8))
    assert nothing.variables[0].numpy() == 0


def test_what_is_not_taken_in_may_be_anything():
    normalizer = RunningNormalizer(specs.Array((), np.float32))
    normalizer.update(tf.constant([[1.0, np.nan], [3.0, np.inf]]), weight=tf.constant([[True, False], [True, False]]))
    np.testing.assert_allclose(normalizer(np.float32([1.0, 3.0])), [-1.0, 1.0])


def test_rewards_of_returns_that_do_not_vary_stay_finite():
    normalizer = RunningNormalizer(specs.Array((), np.float32))
    normalizer.update(tf.fill((3, 2), 8.9075))
    np.testing.assert_allclose(normalizer.divide_by_deviation(tf.constant([0.0, 1.0])), [0.0, 1e4])


def test_two_replicas_have_the_statistics_of_all(on_two_devices):
    on_two_devices(pathlib.Path(__file__).with_name("normalization_replicas.py"), "check_all")


def test_normalized_images_are_not_scaled_by_bounds_that_they_had():
    spec = EnvironmentSpec(specs.BoundedArray((40, 40, 3), np.float32, 0, 255), specs.DiscreteArray(2))
    seen = []

    def torso(spec):
        seen.append(spec.observation)
        return make_torso(spec, "nature")

    policy_value_network(spec, torso, normalize_observations=True)
    assert seen == [specs.Array((40, 40, 3), np.float32)]


def test_the_newest_observations_weigh_most_once_there_are_more_than_the_memory():
    rng = np.random.default_rng(6)
    batches = [scale * rng.normal(size=(5, 8)) for scale in (100.0, 100.0, *[1.0] * 40)]
    forgetful, other = (RunningNormalizer(specs.Array((), np.float64), memory=size) for size in (160, math.inf))
    mean, variance = 0.0, 1.0
    for number, batch in enumerate(batches, start=1):
        forgetful.update(batch)
        other.update(batch)
        share = 40 / min(40 * number, 160)
        mean, variance = (
            (1 - share) * mean + share * batch.mean(),
            (1 - share) * variance + share * batch.var() + share * (1 - share) * (batch.mean() - mean) ** 2,
        )
    np.testing.assert_allclose(forgetful._means[0], mean)
    np.testing.assert_allclose(forgetful._variances[0], variance)
    assert variance < 2 and float(other._variances[0]) > 100
    forgetful.update(np.full((5, 8), np.nan), weight=np.zeros((5, 8)))
    np.testing.assert_allclose(forgetful._variances[0], variance)


def test_a_batch_larger_than_the_memory_is_all_that_is_known():
    normalizer = RunningNormalizer(specs.Array((), np.float64), memory=10)
    normalizer.update(np.full((5, 8), 7.0))
    batch = np.arange(40.0).reshape(5, 8)
    normalizer.update(batch)
    np.testing.assert_allclose(normalizer._means[0], batch.mean())
    np.testing.assert_allclose(normalizer._variances[0], batch.var())
