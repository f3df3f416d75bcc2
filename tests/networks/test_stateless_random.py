"""Random numbers by index: the published generator, moments, and independence of the batch."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.random_streams import Stream, stream_seed
from callboard.networks.stateless_random import standard_normal, uniform

SEED = (3, -7)
USE = "a test"
DRAWS = [uniform, standard_normal]


def splitmix64(state):
    """One output of SplitMix64 from its state, in Python's integers."""
    z = state % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_the_generator():
    golden = 0x9E3779B97F4A7C15
    # The first outputs for the seed 1234567, as published with other implementations of the generator.
    assert [splitmix64(1234567 + k * golden) for k in (1, 2)] == [6457827717110365317, 3203168211198807973]
    digest = hashlib.blake2b(b"0 a test", digest_size=16).digest()
    words = [splitmix64(word + int.from_bytes(digest[8 * k : 8 * k + 8], "little")) for k, word in enumerate(SEED)]
    np.testing.assert_array_equal(stream_seed(SEED, USE), np.array(words, np.uint64).astype(np.int64))
    key = splitmix64(splitmix64(words[0] + golden) + words[1] * golden)
    expected = [[splitmix64(splitmix64(key + (i + 1) * golden) + (k + 1) * golden) for k in range(3)] for i in (0, 41)]
    draws = uniform(SEED, USE, [0, 41], (3,), tf.float64)
    np.testing.assert_array_equal(draws, np.array([[word >> 11 for word in row] for row in expected]) / 2**53)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_a_row_depends_only_on_its_index(draw, dtype):
    index = np.array([7, 0, 2**31 - 1, 7, 12])
    rows = draw(SEED, USE, index, (2, 3), dtype)
    assert rows.shape == (5, 2, 3) and rows.dtype == dtype
    for b, one in enumerate(index):
        np.testing.assert_array_equal(draw(SEED, USE, [one], (2, 3), dtype)[0], rows[b])
    assert len(np.unique(rows)) == 4 * 6  # Index 7 twice, all others different.
    compiled = tf.function(
        lambda seed, index: draw(seed, USE, index, (2, 3), dtype),
        input_signature=[tf.TensorSpec((2,), tf.int32), tf.TensorSpec((None,), tf.int32)],
        autograph=False,
    )
    np.testing.assert_allclose(compiled(SEED, index), rows, rtol=1e-6)
    assert draw(SEED, USE, index, dtype=dtype).shape == (5,)


@pytest.mark.parametrize("draw", DRAWS)
def test_both_words_of_the_seed_matter(draw):
    draws = np.stack([draw(seed, USE, np.arange(50)) for seed in ((3, -7), (-7, 3), (3, 7), (-3, -7), (0, 0), (0, 1))])
    assert len(np.unique(draws)) > 0.99 * draws.size


@pytest.mark.parametrize("seed", [(0, 0), (1, 2), (-5, 100000)])
def test_normal_moments_and_tails(seed):
    rows, columns = 50_000, 4
    x = standard_normal(seed, USE, np.arange(rows), (columns,), tf.float64).numpy()
    number = x.size
    # Each within four and a half of its standard deviations.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 4.5 * np.sqrt(variance / number)
    for border, tail in ((1.0, 0.158655), (2.0, 0.022750), (3.0, 0.0013499)):
        for tails in (x > border, x < -border):
            assert abs(tails.mean() - tail) < 4.5 * np.sqrt(tail / number)
    # Columns with each other, squares of columns (radius and angle), and rows with the next.
    for pairs in (np.corrcoef(x.T), np.corrcoef((x**2).T), np.corrcoef(x[:-1].T, x[1:].T)):
        assert np.abs(pairs - np.eye(len(pairs))).max() < 4.5 / np.sqrt(rows)


def test_uniform_numbers():
    for dtype in (tf.float32, tf.float64):
        x = uniform((1, 2), USE, np.arange(100_000), dtype=dtype).numpy()
        assert 0 <= x.min() and x.max() < 1
        observed = np.bincount((x * 100).astype(int), minlength=100)
        chi2 = ((observed - 1000) ** 2 / 1000).sum()
        assert 46 < chi2 < 173  # All but one in 10,000 either way, with 99 degrees of freedom.


def test_one_is_never_sampled():
    """The double of this index rounds to 1 in float32."""
    assert uniform((0, 0), USE, [75124480], dtype=tf.float64) > 1 - 2**-25
    assert uniform((0, 0), USE, [75124480], dtype=tf.float32) < 1


def test_successive_seeds_are_unrelated():
    """A run increments one word of the seed at every step."""
    x = np.stack([standard_normal((9, step), USE, np.arange(2000)) for step in range(10)])
    assert np.abs(np.corrcoef(x) - np.eye(10)).max() < 4.5 / np.sqrt(2000)


def test_float32_is_float64_rounded():
    wide, narrow = (standard_normal(SEED, USE, np.arange(100), (3,), dtype) for dtype in (tf.float64, tf.float32))
    np.testing.assert_array_equal(tf.cast(wide, tf.float32), narrow)


@pytest.mark.parametrize("draw", DRAWS)
def test_parts_of_a_batch_with_their_own_seeds_get_the_same_samples_as_alone(draw):
    seeds, index = np.array([[1, 2], [-3, 7], [1, 2]], np.int32), np.arange(4, 16)
    together = draw(seeds, USE, index, (3,))
    alone = [draw(seed, USE, part, (3,)) for seed, part in zip(seeds, np.split(index, 3), strict=True)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("draw", DRAWS)
def test_streams_of_one_seed_are_unrelated(draw):
    index = np.arange(2000)
    seeds = [SEED, *(stream_seed(SEED, "another use", number) for number in range(2)), stream_seed(SEED, USE)]
    x = np.stack([draw(seed, use, index) for seed in seeds for use in ("one use", "two uses")])
    assert np.abs(np.corrcoef(x) - np.eye(len(x))).max() < 4.5 / np.sqrt(2000)


def test_no_two_streams_have_the_same_name():
    assert len({stream.value for stream in Stream}) == len(Stream.__members__)
