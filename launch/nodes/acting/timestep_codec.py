"""Packs timesteps into bytes, because a call over Courier hangs if its arguments are arrays."""

import math

import numpy as np
import tree

from ....agents.policies.acting import timestep_spec
from ....data import Layout, Timestep, rebuilt


class TimestepCodec:
    """Converts the timesteps of one actor to bytes and back.

    Args:
      layout: provides the environment's spec and the batch size.
    """

    def __init__(self, layout: Layout):
        self._spec = timestep_spec(layout, layout.envs_per_actor)
        leaves = tree.flatten(self._spec)
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self._counts = [math.prod(shape) for shape in self._shapes]
        self._dtypes = [np.dtype(leaf.dtype.as_numpy_dtype) for leaf in leaves]

    def pack(self, timestep: Timestep) -> bytes:
        """Concatenates the arrays of a timestep.

        Raises:
          ValueError: the shape or dtype of an array differs from the spec.
        """
        arrays = [np.asarray(leaf) for leaf in tree.flatten(timestep)]
        for array, shape, dtype in zip(arrays, self._shapes, self._dtypes, strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"a timestep holds {array.dtype}{array.shape} where its spec says {dtype}{shape}")
        return b"".join(array.tobytes() for array in arrays)

    def unpack(self, content: bytes) -> Timestep:
        """Returns the timestep; its arrays are read-only views of the bytes."""
        arrays, offset = [], 0
        for shape, dtype, count in zip(self._shapes, self._dtypes, self._counts, strict=True):
            arrays.append(np.frombuffer(content, dtype, count, offset).reshape(shape))
            offset += count * dtype.itemsize
        return rebuilt(self._spec, iter(arrays))
