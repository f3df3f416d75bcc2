"""Functions that are called thousands of times a second with small arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..data import Nest, rebuilt

# Where no kernel is for the device that holds a variable (a GPU), the operation runs on the processor.
_SETTINGS = tf.compat.v1.ConfigProto(allow_soft_placement=True).SerializeToString()


class CompiledFunction:
    """A function of tensors, traced once, for calls that cost little.

    A `tf.function` binds, checks and converts its arguments in Python at every call, and a concrete function still does
    half of that: on a small network this takes several times as long as the network.  Here a call hands the traced
    graph to the runtime as the operation that it is.  What the graph does not use is not converted.  No gradient flows
    through a call.

    Args:
      function: takes tensors in the structure of `signature`, and gives a nest of tensors.
      *signature: a nest of `tf.TensorSpec` for each argument.
    """

    def __init__(self, function: Callable[..., Nest], *signature: Nest):
        self.outputs: Nest = None
        """`tf.TensorSpec` of what a call gives."""

        def traced(*leaves: tf.Tensor) -> list[tf.Tensor]:
            outputs = function(*tree.unflatten_as(signature, leaves))
            self.outputs = tree.map_structure(tf.type_spec_from_value, outputs)
            return tree.flatten(outputs)

        leaves = tree.flatten(signature)
        self._function = tf.function(traced, autograph=False).get_concrete_function(*leaves)
        self._captured = list(self._function.captured_inputs)
        self._output_types = [output.dtype for output in tree.flatten(self.outputs)]
        inputs = self._function.inputs[: len(leaves)]
        self._inputs = [_Input(leaf, used=bool(node.consumers())) for leaf, node in zip(leaves, inputs, strict=True)]

    def __call__(self, *arguments: Nest) -> Nest:
        """The function's outputs, as tensors.

        Args:
          *arguments: nests of tensors, or of arrays, which are copied: whoever made one may write over it.

        Raises:
          ValueError: an array has another shape or dtype than its signature.
        """
        leaves = tree.flatten(arguments)
        inputs = [prepare(leaf) for prepare, leaf in zip(self._inputs, leaves, strict=True)]
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=inputs + self._captured,
            Tout=self._output_types,
            f=self._function,
            config="",
            config_proto=_SETTINGS,
            executor_type="",
        )
        return rebuilt(self.outputs, iter(outputs))


def as_arrays(nest: Nest) -> Nest:
    """The tensors of a nest as NumPy arrays."""
    return rebuilt(nest, (leaf.numpy() for leaf in tree.flatten(nest)))


class _Input:
    """What one input of a graph is given."""

    def __init__(self, spec: tf.TensorSpec, used: bool):
        self._spec = spec
        self._shape = tuple(spec.shape)
        self._dtype = np.dtype(spec.dtype.as_numpy_dtype)
        # Of a size that is not known a stand-in may have any.
        self._stand_in = None if used else tf.zeros([size or 0 for size in self._shape], spec.dtype)

    def __call__(self, leaf: Any) -> Any:
        if self._stand_in is not None:
            return self._stand_in
        if isinstance(leaf, tf.Tensor):
            return leaf
        if leaf.dtype != self._dtype or not self._fits(leaf.shape):
            raise ValueError(f"{leaf.dtype}{leaf.shape} was given where the function takes {self._dtype}{self._shape}")
        # TensorFlow would share the memory of an array that happens to be aligned.
        return np.array(leaf)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if shape == self._shape:
            return True
        sizes = zip(shape, self._shape, strict=False)
        return len(shape) == len(self._shape) and all(wanted in (None, size) for size, wanted in sizes)
