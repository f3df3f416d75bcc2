"""TensorFlow's stateless random numbers on the CPU, of many seeds in one pass of NumPy.

The counter-based generator Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section
3.3), with the numbers of `tf.random.stateless_uniform(..., alg="philox")` to the bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

_ROUNDS = 10
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_SEED_KEY = np.uint64(0x3EC8F720), np.uint64(0x02461E29)
"""Key of the pass that TensorFlow makes over a seed, so that no part of it needs to be random."""
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_FRACTION, _ONE = np.uint64(0xFFFFF), np.uint64(1023 << 52)


def uniform_doubles(seeds: np.ndarray, count: int) -> np.ndarray:
    """Returns what `tf.random.stateless_uniform((count,), seed, tf.float64, alg="philox")` returns for each seed.

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
