"""Gathers of every dtype, and that GPUs have kernels for their operations."""

import numpy as np
import pytest
import tensorflow as tf
from gpu_kernels import nodes_of, without_kernel

from callboard.networks.gathers import gather, gather_nd, stack_leaves

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 bfloat16 float32 float64".split()
WHERE = np.array([[2, 0], [0, 1], [1, 1]])


def numbers(dtype, shape):
    return tf.cast(np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (3, 2, *shape)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
# Slices that fill words of 32 bits, and others.
@pytest.mark.parametrize("shape", [(4, 2), (3, 1), ()])
def test_they_are_those_of_tensorflow(dtype, shape):
    x = numbers(dtype, shape)
    values = np.asarray(tf.cast(x, tf.float64))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, None, *shape), dtype)])
    def gathered(x):
        return gather_nd(x, WHERE), gather(x, WHERE % 2, axis=1), gather(x, WHERE[:, 0]), stack_leaves([x, x], axis=1)

    assert without_kernel(nodes_of(gathered.get_concrete_function())) == set()
    for found in (gathered(x), gathered.python_function(x)):
        assert {one.dtype for one in found} == {x.dtype}
        assert [one.shape[1:].rank for one in found] == [len(shape), len(shape) + 2, len(shape) + 1, len(shape) + 2]
        expected = (
            values[tuple(WHERE.T)],
            values[:, WHERE % 2],
            values[WHERE[:, 0]],
            np.stack([values, values], axis=1),
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(tf.cast(one, tf.float64)), other)
