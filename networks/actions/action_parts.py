"""The parts of a composed action: a nest of discrete choices and of arrays of numbers, as flat tensors and back."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ...action_masks import choice_sizes
from ...data import Nest
from ...specs import MultiDiscreteArray
from .action_bounds import ActionBounds
from .legal_actions import legal_actions


class Chosen(NamedTuple):
    """A composed action as flat tensors, with leading axes `[...]`."""

    choices: Any
    """int32 `[..., K]`, the discrete choices; `()` if there are none."""
    numbers: Any
    """`[..., D]`, the numbers before scaling and clipping to the environment's bounds; `()` if there are none."""


class ActionPart(NamedTuple):
    """A part of an action: one discrete choice, or one array of numbers."""

    discrete: bool
    start: int
    """Position in `Chosen.choices`, or of the first number in `Chosen.numbers`."""
    size: int
    """Number of values of the choice, or of numbers."""


class ActionParts:
    """The parts of an action, in the order of `tree.flatten`, and of its elements within an array of choices.

    Args:
      action: nest of `DiscreteArray`, `MultiDiscreteArray`, and `BoundedArray` of floats.
      unbounded: whether the bounds of numbers may be infinite.

    Raises:
      CallboardError: a leaf is something else.
    """

    def __init__(self, action: Nest, unbounded: bool = True):
        self._action = action
        self._leaves = tree.flatten(action)
        self.sizes = choice_sizes(action)
        """int64 `[K]`, number of values of each choice."""
        self._bounds = [None if _is_discrete(leaf) else ActionBounds(leaf, unbounded) for leaf in self._leaves]
        self.parts = tuple(self._parts())
        self.numbers = sum(part.size for part in self.parts if not part.discrete)
        """D, the number of numbers."""

    @property
    def equal_sizes(self) -> bool:
        """Whether all choices have the same number of values, so that no row of `choice_rows` is padded."""
        return bool(np.all(self.sizes == self.sizes[:1]))

    def choice_rows(self, values: tf.Tensor) -> tf.Tensor:
        """Reshapes numbers or bools of all choices' values `[..., S]` to `[..., K, M]`, one row per choice.

        Rows of choices with fewer than M values end with zeros.
        """
        count, largest = len(self.sizes), int(self.sizes.max())
        if self.equal_sizes:
            return tf.reshape(values, (*_lengths(values)[:-1], count, largest))
        nothing = int(self.sizes.sum())
        index = np.full((count, largest), nothing)
        for row, (size, start) in enumerate(zip(self.sizes, np.cumsum(self.sizes) - self.sizes, strict=True)):
            index[row, :size] = start + np.arange(size)
        return tf.gather(tf.concat([values, tf.zeros_like(values[..., :1])], axis=-1), index, axis=-1)

    def legal_choices(self, observation: Nest) -> tf.Tensor | None:
        """Returns which values of each choice observations `[..., *shape]` allow, as `legal_rows`."""
        return self.legal_rows(legal_actions(observation))

    def legal_rows(self, legal: tf.Tensor | None) -> tf.Tensor | None:
        """Returns which values of each choice are legal, bool `[..., K, M]`; None if all are.

        Padding is not legal.  Where no value of a choice is, as at the end of an episode, all of them are.

        Args:
          legal: bool `[..., S]`, which values of all choices are legal; None if all are.
        """
        exists = self.choice_rows(tf.ones((int(self.sizes.sum()),), tf.bool))
        if legal is None:
            return None if self.equal_sizes else exists
        rows = self.choice_rows(legal)
        return rows | (exists & ~tf.reduce_any(rows, axis=-1, keepdims=True))

    @tf.autograph.experimental.do_not_convert
    def to_environment(self, chosen: Chosen) -> Nest:
        """Maps flat actions to a nest of arrays `[..., *shape]` in the environment's dtypes and within its bounds."""
        leaves, parts = [], iter(self.parts)
        for leaf, bounds in zip(self._leaves, self._bounds, strict=True):
            first = next(parts)
            if bounds is not None:
                leaves.append(bounds.to_environment(chosen.numbers[..., first.start : first.start + first.size]))
                continue
            count = int(np.prod(leaf.shape))
            choices = chosen.choices[..., first.start : first.start + count]
            leaves.append(tf.cast(tf.reshape(choices, (*_lengths(choices)[:-1], *leaf.shape)), leaf.dtype))
            next(itertools.islice(parts, count - 1, count - 1), None)
        return tree.unflatten_as(self._action, leaves)

    @tf.autograph.experimental.do_not_convert
    def choices(self, action: Nest) -> Any:
        """Returns the discrete choices of actions of the environment, int32 `[..., K]`; `()` if there are none."""
        flat = [
            tf.reshape(value, (*_lengths(value)[: len(value.shape) - len(leaf.shape)], int(np.prod(leaf.shape))))
            for leaf, value in zip(self._leaves, tree.flatten(action), strict=True)
            if _is_discrete(leaf)
        ]
        return tf.concat([tf.cast(value, tf.int32) for value in flat], axis=-1) if flat else ()

    @tf.autograph.experimental.do_not_convert
    def unit_numbers(self, action: Nest, dtype: Any) -> Any:
        """Returns the numbers of actions of the environment, scaled to [-1, 1], `[..., D]`; `()` if there are none."""
        flat = [
            bounds.from_environment(value, dtype)
            for bounds, value in zip(self._bounds, tree.flatten(action), strict=True)
            if bounds is not None
        ]
        return tf.concat(flat, axis=-1) if flat else ()

    def _parts(self) -> Any:
        choice = number = 0
        for leaf, bounds in zip(self._leaves, self._bounds, strict=True):
            if bounds is not None:
                yield ActionPart(False, number, bounds.size)
                number += bounds.size
                continue
            for size in np.ravel(leaf.num_values):
                yield ActionPart(True, choice, int(size))
                choice += 1


def one_hot_choices(parts: ActionParts, choices: Any, dtype: Any) -> tf.Tensor:
    """Returns choices `[..., K]` as one-hot rows `[..., K, M]`."""
    return tf.one_hot(choices, int(parts.sizes.max()), dtype=dtype)


def _is_discrete(leaf: Any) -> bool:
    return isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray)


def _lengths(tensor: Any) -> list[Any]:
    """Returns the lengths of a tensor's axes, as numbers where they are known."""
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if known is None else known for axis, known in enumerate(tensor.shape)]
