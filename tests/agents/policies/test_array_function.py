"""Graphs computed with NumPy: values, what changes when, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.fast_function import CompiledFunction
from callboard.agents.policies.array_policy import ArrayFunction, UnknownOperation
from callboard.networks.distributions import Categorical

X, SEED = tf.TensorSpec((4, 3)), tf.TensorSpec((2,), tf.int32)
INPUT = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def traced(function):
    return CompiledFunction(function, X, SEED).traced


def test_new_values_of_variables_are_used_and_random_numbers_are_of_each_timestep():
    weight, offset = tf.Variable(np.eye(3, dtype=np.float32)), tf.Variable([1.0, 2.0, 3.0])

    def function(x, seed):
        logits = tf.nn.relu(x @ tf.math.rsqrt(weight + 0.5) + offset)
        return Categorical(logits).sample(seed), tf.nn.log_softmax(logits), tf.reduce_sum(logits, -1)

    compiled = CompiledFunction(function, X, SEED)
    arrays = ArrayFunction(compiled.traced, [offset, weight])
    # Beyond a block of random numbers, back, and with another seed.
    for number, (seed, timestep) in enumerate([(1, 0), (1, 1), (1, 70), (1, 71), (1, 3), (2, 3)]):
        weight.assign(weight + number)
        arrays.use([offset.numpy(), weight.numpy()])
        found = arrays([INPUT], seed, timestep)
        for left, right in zip(found, compiled(INPUT, np.array([seed, timestep], np.int32)), strict=True):
            assert left.dtype == right.numpy().dtype
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"float64\(4, 3\) was given"):
        arrays([INPUT.astype(np.float64)], 1, 0)


def test_random_numbers_follow_probabilities():
    logits = np.log([0.1, 0.6, 0.3]).astype(np.float32)
    arrays = ArrayFunction(traced(lambda x, seed: Categorical(x + logits).sample(seed)), [])
    arrays.use([])
    chosen = [arrays([np.zeros((4, 3), np.float32)], 7, timestep)[0] for timestep in range(2500)]
    np.testing.assert_allclose(np.bincount(np.ravel(chosen)) / 10_000, [0.1, 0.6, 0.3], atol=0.02)


COUNTER = tf.Variable(0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, seed: tf.linalg.matrix_transpose(x),
        lambda x, seed: x + COUNTER.assign_add(1.0),
        lambda x, seed: x + tf.cast(seed[0], tf.float32),
        lambda x, seed: Categorical(x).sample(seed[::-1]),
        lambda x, seed: (x, tf.print("seen"))[0],
        lambda x, seed: tf.cast(x, tf.bfloat16),
        lambda x, seed: tf.matmul(x, x, transpose_b=True),
        lambda x, seed: tf.tile(x, (300, 1)) @ tf.zeros((3, 300)),
        lambda x, seed: x + COUNTER,
        lambda x, seed: tf.unstack(x)[1],
        lambda x, seed: COUNTER.handle,
    ],
    ids=[
        "unknown",
        "assigned",
        "seed",
        "order of seed",
        "effect",
        "dtype",
        "attribute",
        "large",
        "other variable",
        "second output",
        "handle",
    ],
)
def test_a_graph_that_is_not_known_is_refused(function):
    with pytest.raises(UnknownOperation):
        ArrayFunction(traced(function), [])
