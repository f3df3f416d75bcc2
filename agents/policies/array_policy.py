"""Policies of actors that are computed with NumPy: for small networks, a call into TensorFlow costs several times more.

The graph of a traced policy is taken apart once.  What depends on variables alone is computed when they change, random
numbers for many timesteps at once, and only the rest in every call, in the calling thread.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ...data import Layout, Timestep
from ..agent import Policy
from .acting import CompiledPolicy
from .array_operations import ELEMENTWISE, Operation, array_operation, uniform_doubles

_TIMESTEPS = 64
"""Timesteps whose random numbers are computed at once."""
_SEED_OPERATIONS = {*ELEMENTWISE, "Cast", "Bitcast", "Identity"}
"""Operations through which a seed may reach a sampler: those that leave each word of it in its place."""


class _Input(NamedTuple):
    """A leaf of the inputs that is used."""

    number: int
    place: int
    shape: tuple[int, ...]
    dtype: Any


_Step = tuple[Operation, tuple[int, ...], int]
"""The function that computes a value, and the places of its inputs and of its result."""


class UnknownOperation(Exception):
    """A graph has an operation, or an input, that is not known here."""


class ArrayFunction:
    """A graph computed with NumPy; results differ from TensorFlow's at most in their last bits.

    Args:
      graph: a traced function of leaves, the last of which is a seed, int32 `[2]`: the second word is the number of the
        timestep.
      variables: all variables that it may read.

    Raises:
      UnknownOperation: it cannot be computed here.
    """

    def __init__(self, graph: Any, variables: Sequence[tf.Variable]):
        self._values: list[Any] = []
        self._places: dict[Any, int] = {}
        self._of_weights: list[_Step] = []
        self._of_seed: list[_Step] = []
        self._of_inputs: list[_Step] = []
        self._samplers: list[tuple[int, int, int]] = []
        """Places of a sampler's seed and of its uniform numbers, and how many there are."""
        self._sampled: list[np.ndarray] = []
        self._block: tuple[int, int] | None = None
        captured = graph.captured_inputs
        leaves = graph.inputs[: len(graph.inputs) - len(captured)]
        self._seed = self._place(leaves[-1])
        self._inputs = [
            _Input(number, self._place(leaf), tuple(leaf.shape), leaf.dtype.as_numpy_dtype)
            for number, leaf in enumerate(leaves[:-1])
        ]
        self._variables: list[tuple[int, int]] = []
        depends = {self._seed: self._of_seed, **{one.place: self._of_inputs for one in self._inputs}}
        numbers = {id(variable.handle): number for number, variable in enumerate(variables)}
        handles: dict[Any, int | None] = {}
        for leaf, outside in zip(graph.inputs[len(leaves) :], captured, strict=True):
            handles[leaf.ref()] = numbers.get(id(outside))
            if leaf.dtype not in (tf.resource, tf.variant):
                self._values[self._place(leaf)] = outside.numpy()
        needed = _needed(graph)
        for node in graph.graph.get_operations():
            if node in needed and node.type != "Placeholder":
                self._add(node, depends, handles)
        self._outputs = [self._place_of(leaf) for leaf in graph.outputs]
        used = {place for _, places, _ in self._of_inputs for place in places} | set(self._outputs)
        self._inputs = [one for one in self._inputs if one.place in used]
        if any(depends.get(place) is self._of_seed for place in used):
            raise UnknownOperation("not only samplers of choices use the seed")

    def use(self, values: Sequence[np.ndarray]) -> None:
        """Takes new values of the variables; they must not be modified later."""
        for place, number in self._variables:
            value = values[number]
            # BLAS copies what is not aligned, in every call.
            self._values[place] = value if value.flags.aligned else value.copy()
        with np.errstate(all="ignore"):
            self._run(self._of_weights)

    def __call__(self, leaves: Sequence[np.ndarray], seed: int, timestep: int) -> list[np.ndarray]:
        """Returns the leaves of the outputs.  The leaves of the inputs do not include the seed."""
        values = self._values
        for number, place, shape, dtype in self._inputs:
            leaf = values[place] = leaves[number]
            if leaf.shape != shape or leaf.dtype != dtype:
                raise ValueError(f"{leaf.dtype}{leaf.shape} was given where the function takes {dtype}{shape}")
        if self._samplers:
            self._sample(seed, timestep)
        self._run(self._of_inputs)
        return [values[place] for place in self._outputs]

    def _run(self, steps: list[_Step]) -> None:
        values = self._values
        for operation, inputs, place in steps:
            if len(inputs) == 2:
                # As most of them, and in less time than with any number.
                left, right = inputs
                values[place] = operation(values[left], values[right])
            else:
                values[place] = operation(*[values[one] for one in inputs])

    def _sample(self, seed: int, timestep: int) -> None:
        """Sets the uniform numbers of a timestep."""
        if self._block is None or self._block[0] != seed or not 0 <= timestep - self._block[1] < _TIMESTEPS:
            self._block = seed, timestep
            seeds = np.empty((_TIMESTEPS, 2), np.int32)
            seeds[:, 0], seeds[:, 1] = seed, np.arange(timestep, timestep + _TIMESTEPS)
            self._values[self._seed] = seeds
            self._run(self._of_seed)
            self._sampled = [
                uniform_doubles(self._values[place].astype(np.int64), count) for place, _, count in self._samplers
            ]
        for (_, place, _), numbers in zip(self._samplers, self._sampled, strict=True):
            self._values[place] = numbers[timestep - self._block[1]]

    def _place(self, leaf: tf.Tensor) -> int:
        self._places[leaf.ref()] = len(self._values)
        self._values.append(None)
        return len(self._values) - 1

    def _place_of(self, leaf: tf.Tensor) -> int:
        if leaf.ref() not in self._places:
            raise UnknownOperation(f"nothing computes {leaf.name}")
        return self._places[leaf.ref()]

    def _add(self, node: tf.Operation, depends: dict[int, list[_Step]], handles: dict[Any, int | None]) -> None:
        """Adds a node to the steps of what it depends on."""
        if node.type == "ReadVariableOp":
            number = handles.get(node.inputs[0].ref())
            if number is None:
                raise UnknownOperation(f"{node.name} reads a variable that is none of the policy's")
            place = self._place(node.outputs[0])
            depends[place] = self._of_weights
            self._variables.append((place, number))
            return
        constant = tf.get_static_value(node.outputs[0]) if len(node.outputs) == 1 else None
        if constant is not None:
            self._values[self._place(node.outputs[0])] = np.asarray(constant)
            return
        if node.type == "StatelessMultinomial":
            self._add_sampler(node, depends)
            return
        operation = array_operation(node)
        if operation is None:
            raise UnknownOperation(f"{node.type} of {node.name}")
        self._add_step(operation, _read(node), node.outputs[0], depends)

    def _add_step(self, operation: Operation, inputs: Any, output: tf.Tensor, depends: dict[int, list[_Step]]) -> None:
        places = tuple(map(self._place_of, inputs))
        # Of what changes more often than another, the latter is known.
        order = [self._of_weights, self._of_seed, self._of_inputs]
        of = [depends[place] for place in places if place in depends]
        steps = max(of, key=lambda one: [one is other for other in order].index(True), default=self._of_weights)
        place = self._place(output)
        depends[place] = steps
        steps.append((operation, places, place))

    def _add_sampler(self, node: tf.Operation, depends: dict[int, list[_Step]]) -> None:
        """Adds a node that samples one choice per row of logits."""
        logits, count, seed = node.inputs
        rows, dtype = logits.shape[0], node.outputs[0].dtype.as_numpy_dtype
        if tf.get_static_value(count) != 1 or rows is None or not _keeps_words(seed, self._places, self._seed):
            raise UnknownOperation(f"{node.type} of {node.name}")
        uniform = len(self._values)
        self._values.append(None)
        depends[uniform] = self._of_inputs
        self._samplers.append((self._place_of(seed), uniform, rows))
        place = self._place(node.outputs[0])
        depends[place] = self._of_inputs

        def choose(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
            scaled = logits.astype(np.float64)
            scaled -= np.maximum.reduce(scaled, -1, keepdims=True)
            np.exp(scaled, scaled)
            cumulative = np.add.accumulate(scaled, -1)
            found = cumulative <= uniform[:, np.newaxis] * cumulative[:, -1:]
            return np.add.reduce(found, -1, dtype, keepdims=True)

        self._of_inputs.append((choose, (self._place_of(logits), uniform), place))


def _read(node: tf.Operation) -> Sequence[tf.Tensor]:
    """Returns the inputs of a node that its operation here reads; shapes are known."""
    return node.inputs[:1] if node.type == "Reshape" else node.inputs


def _needed(graph: Any) -> set[tf.Operation]:
    """Returns the nodes that the outputs of a traced function depend on.

    Raises:
      UnknownOperation: it does something else than to compute its outputs, such as an assignment.
    """
    for node in graph.graph.control_outputs:
        if node.type not in ("NoOp", "ReadVariableOp", "StatelessMultinomial"):
            raise UnknownOperation(f"{node.type} of {node.name}")
    needed: set[tf.Operation] = set()
    waiting = [leaf.op for leaf in graph.outputs]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [leaf.op for leaf in _read(node)]
    return needed


def _keeps_words(leaf: tf.Tensor, places: dict[Any, int], seed: int) -> bool:
    """Returns whether a leaf is made of the seed by operations that leave its words in their places."""
    if places.get(leaf.ref()) == seed or tf.get_static_value(leaf) is not None:
        return True
    same = leaf.op.type in _SEED_OPERATIONS and leaf.shape == (2,)
    return same and all(_keeps_words(one, places, seed) for one in leaf.op.inputs)


_TOLERANCE = 1e-3


class ArrayPolicy(CompiledPolicy):
    """A compiled policy that computes its actions with NumPy where it can: same arguments, same samples.

    It can if the policy has no state and `array_function` knows all operations of its graph.  Actions and extras are
    those of TensorFlow but for their last bits; the first ones are compared.
    """

    def __init__(self, policy: Policy, layout: Layout, slots: np.ndarray, seed: int, incarnation: int = 0):
        super().__init__(policy, layout, slots, seed, incarnation)
        self._arrays: ArrayFunction | None = None
        self._compared = self._is_current = False
        variables = getattr(policy, "variables", None)
        if self._act.traced is None or variables is None or tree.flatten(self.state):
            return
        try:
            self._arrays = ArrayFunction(self._act.traced, variables)
        except UnknownOperation as error:
            logging.debug("actions are computed with TensorFlow: %s", error)

    @property
    def computes_arrays(self) -> bool:
        """Whether NumPy computes the actions."""
        return self._arrays is not None and self._is_current

    @property
    def reads_variables(self) -> bool:
        return not (self.computes_arrays and self._compared)

    def use(self, values: Sequence[np.ndarray]) -> None:
        if self._arrays is not None:
            self._arrays.use(values)
            self._is_current = True

    def forget(self) -> None:
        # Until then, TensorFlow computes the actions.
        self._is_current = False

    def _leaves(self, timestep: Timestep) -> list[np.ndarray]:
        if self._arrays is None or not self._is_current:
            return super()._leaves(timestep)
        leaves = self._arrays(tree.flatten(timestep), self._seed, self._timesteps)
        if not self._compared:
            self._compared = True
            compiled = super()._leaves(timestep)
            if not all(map(_same, leaves, compiled)):
                logging.warning("actions are computed with TensorFlow, since NumPy gives others")
                self._arrays = None
                return compiled
        return leaves


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and np.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
