"""Timesteps as bytes: a call over Courier hangs where it is given arrays."""

import math

import numpy as np
import tree

from ...agents.acting import timestep_spec
from ...data import Layout, Timestep, rebuilt


class TimestepCodec:
    """Turns the timesteps of one actor into bytes and back.

    Args:
      layout: names the environment's spec and the size of the batch.
    """

    def __init__(self, layout: Layout):
        self._spec = timestep_spec(layout, layout.envs_per_actor)
        leaves = tree.flatten(self._spec)
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self._counts = [math.prod(shape) for shape in self._shapes]
        self._dtypes = [np.dtype(leaf.dtype.as_numpy_dtype) for leaf in leaves]

    def pack(self, timestep: Timestep) -> bytes:
        """The arrays of a timestep, one after the other.

        Raises:
          ValueError: an array has another shape or dtype than the spec says.
        """
        arrays = [np.asarray(leaf) for leaf in tree.flatten(timestep)]
        for array, shape, dtype in zip(arrays, self._shapes, self._dtypes, strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"a timestep holds {array.dtype}{array.shape} where its spec says {dtype}{shape}")
        return b"".join(array.tobytes() for array in arrays)

    def unpack(self, content: bytes) -> Timestep:
        """The timestep, whose arrays are views of the bytes and cannot be written to."""
        arrays, offset = [], 0
        for shape, dtype, count in zip(self._shapes, self._dtypes, self._counts, strict=True):
            arrays.append(np.frombuffer(content, dtype, count, offset).reshape(shape))
            offset += count * dtype.itemsize
        return rebuilt(self._spec, iter(arrays))
