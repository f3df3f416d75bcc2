"""Operations of TensorFlow graphs, written in NumPy for `array_policy`, and its random numbers.

Every operation is defined as in TensorFlow, with the same dtypes; results differ at most in their last bits.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Operation = Callable[..., np.ndarray]
"""Computes the first output of an operation from its inputs, arrays."""

_LARGEST_PRODUCT = 2**18
"""Multiplications in a matrix product above which TensorFlow's own, with several threads, is no slower."""
_DTYPES = {tf.bool, tf.uint8, tf.int32, tf.int64, tf.uint64, tf.float32, tf.float64}

ELEMENTWISE: Mapping[str, Operation] = {
    "AddV2": np.add,
    "BiasAdd": np.add,
    "BitwiseXor": np.bitwise_xor,
    "Exp": np.exp,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "RealDiv": np.divide,
    "RightShift": np.right_shift,
    "Rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "SelectV2": np.where,
    "Sub": np.subtract,
    "Tanh": np.tanh,
}
"""Operations without attributes that matter."""
SAME = ("Identity", "EnsureShape", "StopGradient")
"""Operations that return their first input."""


def array_operation(node: tf.Operation) -> Operation | None:
    """Returns what a node of a graph computes, as a function of the arrays of its inputs; None if it is not known."""
    if not all(leaf.dtype in _DTYPES for leaf in (*node.inputs, *node.outputs[:1])) or not node.outputs:
        return None
    if any(leaf.shape.rank is None or None in leaf.shape for leaf in (*node.inputs, *node.outputs)):
        return None
    if node.type in ELEMENTWISE:
        channels_last = node.type != "BiasAdd" or node.get_attr("data_format") == b"NHWC"
        return ELEMENTWISE[node.type] if channels_last else None
    make = _MADE.get(node.type)
    return None if make is None else make(node)


def _same(node: tf.Operation) -> Operation:
    return lambda x: x


def _relu(node: tf.Operation) -> Operation:
    zero = np.zeros((), node.outputs[0].dtype.as_numpy_dtype)
    return lambda x: np.maximum(x, zero)


def _product(node: tf.Operation) -> Operation | None:
    left, right = node.inputs
    multiplications = int(np.prod(left.shape)) * int(right.shape[1])
    if node.get_attr("transpose_a") or node.get_attr("transpose_b") or multiplications > _LARGEST_PRODUCT:
        return None
    return np.matmul


def _reshaped(node: tf.Operation) -> Operation:
    shape = tuple(node.outputs[0].shape)
    if tuple(node.inputs[0].shape) == shape:
        return _same(node)
    return lambda x: x.reshape(shape)


def _cast(node: tf.Operation) -> Operation:
    dtype = node.outputs[0].dtype.as_numpy_dtype
    return _same(node) if node.inputs[0].dtype == node.outputs[0].dtype else lambda x: x.astype(dtype)


def _bitcast(node: tf.Operation) -> Operation | None:
    dtype = node.outputs[0].dtype
    return (lambda x: x.view(dtype.as_numpy_dtype)) if node.inputs[0].dtype.size == dtype.size else None


def _sum(node: tf.Operation) -> Operation | None:
    axes, keeps = tf.get_static_value(node.inputs[1]), node.get_attr("keep_dims")
    if axes is None:
        return None
    axis = tuple(np.ravel(axes).tolist())
    return lambda x, _: np.sum(x, axis=axis, keepdims=keeps, dtype=x.dtype)


def _joined(node: tf.Operation) -> Operation | None:
    axis = tf.get_static_value(node.inputs[-1])
    return None if axis is None else lambda *parts: np.concatenate(parts[:-1], int(axis))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _cross_entropy(node: tf.Operation) -> Operation:
    rows = np.arange(node.inputs[0].shape[0])
    return lambda logits, labels: -_log_softmax(logits)[rows, labels]


_MADE: dict[str, Callable[[tf.Operation], Operation | None]] = {
    **dict.fromkeys(SAME, _same),
    "Bitcast": _bitcast,
    "Cast": _cast,
    "ConcatV2": _joined,
    "LogSoftmax": lambda node: _log_softmax,
    "MatMul": _product,
    "Relu": _relu,
    "Reshape": _reshaped,
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "Squeeze": _reshaped,
    "Sum": _sum,
}


_ROUNDS = 10
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_SEED_KEY = np.uint64(0x3EC8F720), np.uint64(0x02461E29)
"""Key of the pass that TensorFlow makes over a seed, so that no part of it needs to be random."""
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_FRACTION, _ONE = np.uint64(0xFFFFF), np.uint64(1023 << 52)


def uniform_doubles(seeds: np.ndarray, count: int) -> np.ndarray:
    """Returns the numbers of `tf.random.stateless_uniform((count,), seed, tf.float64, alg="philox")` for each seed.

    Args:
      seeds: int64 `[N, 2]`.
      count: numbers per seed.

    Returns:
      float64 `[N, count]`, in [0, 1).
    """
    low, high = np.ascontiguousarray(seeds, np.int64).view(np.uint64).T[:, :, np.newaxis]
    a, b, c, d = _philox((low & _LOW, low >> _HALF, high & _LOW, high >> _HALF), _SEED_KEY)
    counter = np.arange((count + 1) // 2, dtype=np.uint64)
    counters = np.broadcast_arrays(counter, np.uint64(0), c, d)
    words = _philox(counters, (a, b))
    # The mantissa of a number in [1, 2): 20 bits of one word and all of the next.
    pairs = ((words[0] & _FRACTION) << _HALF | words[1], (words[2] & _FRACTION) << _HALF | words[3])
    numbers = (np.stack(pairs, axis=-1) | _ONE).view(np.float64) - 1.0
    return numbers.reshape(len(seeds), -1)[:, :count]


def _philox(counters: Sequence[np.ndarray], keys: tuple[Any, Any]) -> tuple[np.ndarray, ...]:
    """Returns four arrays of random words, given four of counters and two of keys; uint64 that hold 32 bits."""
    a, b, c, d = counters
    first, second = keys
    for _ in range(_ROUNDS):
        of_a, of_c = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (of_c >> _HALF) ^ b ^ first, of_c & _LOW, (of_a >> _HALF) ^ d ^ second, of_a & _LOW
        first, second = (first + _KEY_STEPS[0]) & _LOW, (second + _KEY_STEPS[1]) & _LOW
    return a, b, c, d
