import numpy as np
import tensorflow as tf

from callboard.agents.policies.array_operations import uniform_doubles


def test_the_numbers_of_many_seeds_are_those_of_tensorflow_to_the_bit():
    seeds = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (5, 2))
    for count in (1, 8, 9):
        wanted = [tf.random.stateless_uniform((count,), seed, dtype=tf.float64, alg="philox") for seed in seeds]
        np.testing.assert_array_equal(uniform_doubles(seeds, count), np.stack(wanted))
