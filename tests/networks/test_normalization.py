"""Running statistics against NumPy over everything that was seen."""

import numpy as np
import tensorflow as tf
from dm_env import specs

from callboard.networks.normalization import RunningNormalizer


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
        normalizer.update((tf.constant(vector), tf.constant(number)), mask=tf.constant(mask))
        chosen.append((vector[mask], number[mask]))
        if share == 0.0 and len(chosen) == 1:
            # Nothing at all has been seen.
            np.testing.assert_allclose(normalizer((vector, number))[0], vector)
    result = normalizer((vector, number))
    for index in range(2):
        everything = np.concatenate([part[index] for part in chosen]).astype(np.float64)
        expected = ((vector, number)[index] - everything.mean(0)) / everything.std(0)
        np.testing.assert_allclose(result[index], expected, atol=1e-4)


def test_nothing_is_normalised_before_the_first_update_and_other_dtypes_never():
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
