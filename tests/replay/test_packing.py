"""Rows of bytes hold nests of arrays without loss."""

import numpy as np
import pytest
import tensorflow as tf
import tree

from callboard.replay.packing import Packing

NEST = {
    "flag": tf.TensorSpec((), tf.bool),
    "bytes": (tf.TensorSpec((2, 3, 1), tf.uint8), tf.TensorSpec((3,), tf.int8)),
    "numbers": [tf.TensorSpec((5,), tf.float64), tf.TensorSpec((), tf.float32), tf.TensorSpec((1, 2), tf.int64)],
}
SIZE = 1 + 6 + 3 + 40 + 4 + 16


def arbitrary(rng, batch):
    def column(spec):
        size = (batch, *spec.shape)
        if spec.dtype == tf.bool:
            return rng.random(size) < 0.5
        return (100 * rng.normal(size=size)).astype(spec.dtype.as_numpy_dtype)

    return tree.map_structure(column, NEST)


def test_what_is_packed_comes_back_exactly():
    packing, rng = Packing(NEST), np.random.default_rng(0)
    rows = packing.rows(4)
    timesteps = [arbitrary(rng, 4) for _ in range(3)]
    packed = np.stack([rows.fill(tree.flatten(timestep)).copy() for timestep in timesteps])
    assert packed.shape == (3, *packing.signature(4).shape) == (3, 4, SIZE)
    expected = tree.map_structure(lambda *leaves: np.stack(leaves), *timesteps)
    tree.map_structure(np.testing.assert_array_equal, packing.unpack(tf.constant(packed)), expected)


@pytest.mark.parametrize("path", ["flag", "bytes.0", "numbers.2"])
def test_a_signature_names_what_the_bytes_are(path):
    """Other fields of as many bytes have another signature: a checkpoint of the ones is not taken for the others."""
    assert f"{path}:" in Packing(NEST).signature().name
    swapped = NEST | {"flag": tf.TensorSpec((), tf.uint8)}
    assert Packing(swapped).signature().shape == Packing(NEST).signature().shape
    assert Packing(swapped).signature() != Packing(NEST).signature()
