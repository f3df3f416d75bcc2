"""Low-overhead calls of compiled functions, for thousands of calls a second with small arguments.

In TensorFlow's eager mode (`tf.config.run_functions_eagerly`) nothing is compiled: every call runs the Python function,
so that a debugger can step through it.
"""

import contextlib
import contextvars
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tensorflow.python.eager import context, execute

from ..data import Nest, rebuilt
from ..errors import CallboardError, one_line
from ..runtime.tracing_lock import TRACING

_PARALLEL_SIZE = 10_000_000
"""Multiplications of the largest matrix product in a function from which several threads are faster."""
_COMPILES_BY_XLA = contextvars.ContextVar("compiles_by_xla", default=False)


class CompiledFunction:
    """A function of tensors that is traced once and has little overhead per call.

    A `tf.function` binds, checks and converts its arguments in Python at every call, and a concrete function still does
    half of that; for a small network this takes several times as long as the network itself.  This class calls the
    traced graph directly as one operation.  Inputs that the graph does not use are not converted.  No gradients flow
    through a call.  Whether it is compiled is decided when it is made.

    Args:
      function: takes tensors in the structure of `signature` and returns a nest of tensors.
      *signature: a nest of `tf.TensorSpec` for each argument.
    """

    def __init__(self, function: Callable[..., Nest], *signature: Nest):
        self.outputs: Nest = None
        """`tf.TensorSpec`s of the outputs of a call; None in eager mode, before the first call."""
        self.uses: Nest = None
        """The signature with bools in it: whether the graph uses the input; None in eager mode."""
        leaves = tree.flatten(signature)
        self._inputs = [_Input(leaf) for leaf in leaves]
        self.signature = signature
        """The structure of the arguments."""
        self.traced: Any = None
        """The traced function of the leaves; None in eager mode."""
        self._eager = function if tf.config.functions_run_eagerly() else None
        if self._eager is not None:
            return

        def traced(*leaves: tf.Tensor) -> list[tf.Tensor]:
            outputs = function(*tree.unflatten_as(signature, leaves))
            self.outputs = tree.map_structure(tf.type_spec_from_value, outputs)
            return tree.flatten(outputs)

        with TRACING:
            graph = self.traced = tf.function(traced, autograph=False).get_concrete_function(*leaves)
        self._call = _InlineCall(graph)
        used = [bool(node.consumers()) for node in graph.inputs[: len(leaves)]]
        self.uses = tree.unflatten_as(signature, used)
        self._inputs = [_Input(leaf, used) for leaf, used in zip(leaves, used, strict=True)]

    def __call__(self, *arguments: Nest) -> Nest:
        """Calls the function and returns its outputs, as tensors.

        Args:
          *arguments: nests of tensors or arrays.  Arrays are copied, so the caller may overwrite them.

        Raises:
          ValueError: an array has another shape or dtype than its signature.
        """
        leaves = tree.flatten(arguments)
        inputs = [prepare(leaf) for prepare, leaf in zip(self._inputs, leaves, strict=True)]
        if self._eager is not None:
            return self._call_eagerly(self._eager, inputs)
        return rebuilt(self.outputs, iter(self._call(inputs)))

    def _call_eagerly(self, function: Callable[..., Nest], inputs: list[Any]) -> Nest:
        outputs = function(*tree.unflatten_as(self.signature, list(map(tf.convert_to_tensor, inputs))))
        outputs = tree.map_structure(tf.convert_to_tensor, outputs)
        self.outputs = tree.map_structure(tf.type_spec_from_value, outputs)
        return outputs


class CompiledOnFirstCall:
    """A function that is traced in its first call, for arguments of any type, also distributed over replicas.

    A `tf.function` looks its trace up by all leaves of the arguments in every call, which takes 0.25 ms for a batch,
    and the traced function compares their structure, which takes as long again.  For a function that uses one device,
    neither is done, and only the number and the dtypes of the tensors are checked.

    Args:
      function: takes nests of tensors, whose structure, shapes and dtypes must be the same in all calls, and returns a
        nest of tensors.
    """

    def __init__(self, function: Callable[..., Nest]):
        self._by_xla = compiles_by_xla()
        self._function = tf.function(function, autograph=False, jit_compile=self._by_xla or None)
        self._call: Callable[..., Nest] | None = function if tf.config.functions_run_eagerly() else None

    def __call__(self, *arguments: Any) -> Nest:
        """Calls the function.

        Raises:
          CallboardError: XLA cannot compile it.
        """
        if self._call is not None:
            return self._call(*arguments)
        try:
            with TRACING:
                traced = self._function.get_concrete_function(*arguments)
            # XLA compiles what is called as a function by its name.
            at_once = _uses_one_device(traced) and not self._by_xla
            self._call = _as_one_operation(traced) if at_once else traced
            return self._call(*arguments)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError) as error:
            if not self._by_xla:
                raise
            raise CallboardError(
                f"jit_compile: XLA cannot compile this learner's step; leave it out ({one_line(error)})"
            ) from error


def _as_one_operation(traced: Any) -> Callable[..., Nest]:
    """Returns a function that calls a traced one as one operation, whatever the structure of its arguments."""
    threads = tf.config.threading.get_inter_op_parallelism_threads() or len(os.sched_getaffinity(0))
    # By sizes, not by time, since sums may differ in their last bits, and a run must repeat itself.
    call = (_ParallelCall if threads > 1 and _largest_product(traced) >= _PARALLEL_SIZE else _InlineCall)(traced)
    outputs = traced.structured_outputs
    return lambda *arguments: rebuilt(outputs, iter(call(tf.nest.flatten(arguments, expand_composites=True))))


def _largest_product(traced: Any) -> int:
    """Returns about how many multiplications the largest matrix product or convolution of a function takes."""
    # The functions that it calls, such as the updates of a call, are all in its graph, also those that these call.
    graphs = [traced.graph, *(called.graph for called in traced.graph._functions.values())]
    operations = [one for graph in graphs for one in graph.get_operations()]
    products = [one for one in operations if one.type in ("MatMul", "BatchMatMulV2", "Conv2D")]
    return max(
        ((one.inputs[0].shape.num_elements() or 0) * (one.outputs[0].shape[-1] or 0) for one in products), default=0
    )


def _uses_one_device(traced: Any) -> bool:
    """Returns whether a traced function uses one GPU and the processor, or one device of the processor, at most."""
    handles = [value for value in traced.captured_inputs if value.dtype == tf.resource]
    names = {one.device for one in (*traced.graph.get_operations(), *handles) if one.device}
    devices = {tuple(name.upper().rpartition(":")[::2]) for name in names}
    counts = [len({index for kind, index in devices if kind.endswith(of)}) for of in ("GPU", "CPU")]
    return max(counts) <= 1


@contextlib.contextmanager
def compiled_by_xla(wanted: bool = True) -> Iterator[None]:
    """Lets XLA compile each `CompiledOnFirstCall` that is made within the context, and each learner's step."""
    token = _COMPILES_BY_XLA.set(wanted)
    try:
        yield
    finally:
        _COMPILES_BY_XLA.reset(token)


def compiles_by_xla() -> bool:
    """Returns whether this is within a context of `compiled_by_xla`."""
    return _COMPILES_BY_XLA.get()


@contextlib.contextmanager
def eager_functions() -> Iterator[None]:
    """Compiles no policy, loss or update within the context."""
    before = tf.config.functions_run_eagerly()
    # Where batches are read from replay there is nothing to step through.
    warnings.filterwarnings("ignore", message="Even though .* this option does not apply to tf.data functions")
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def as_arrays(nest: Nest) -> Nest:
    """Returns the nest with its tensors converted to NumPy arrays."""
    return rebuilt(nest, (leaf.numpy() for leaf in tree.flatten(nest)))


class _InlineCall:
    """A traced function, called as one operation, all of whose operations run in the thread of the caller."""

    def __init__(self, traced: Any):
        self._traced = traced
        self._captured = list(traced.captured_inputs)
        self._output_types = [output.dtype for output in traced.outputs]
        # As for any other call of a function: with other optimizers of graphs than the process has set, functions on
        # two devices read variables after they had updated them.
        self._settings = context.context().function_call_options.config_proto_serialized

    def __call__(self, inputs: list[Any]) -> Any:
        """Calls the function with the leaves of its arguments, and returns those of its outputs."""
        return tf.raw_ops.StatefulPartitionedCall(
            args=inputs + self._captured,
            Tout=self._output_types,
            f=self._traced,
            config="",
            config_proto=self._settings,
            executor_type="",
        )


class _ParallelCall(_InlineCall):
    """A traced function, called by its name, whose operations run in TensorFlow's threads, several at once."""

    def __call__(self, inputs: list[Any]) -> Any:
        attributes = ("executor_type", "", "config_proto", self._settings)
        name, number = self._traced.name, len(self._output_types)
        tensors = [value if tf.is_tensor(value) else tf.convert_to_tensor(value) for value in inputs]
        return execute.execute(name, number, tensors + self._captured, attributes, context.context())


class _Input:
    """Conversion of an argument to one input of a graph."""

    def __init__(self, spec: tf.TensorSpec, used: bool = True):
        self._spec = spec
        self._shape = tuple(spec.shape)
        self._dtype = np.dtype(spec.dtype.as_numpy_dtype)
        # Unknown dimensions of a placeholder may have any size.
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
