"""Distributions of values that stay the same when the values of their atoms change."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from ..target_update import assign_each

_FALL = 2.0
"""By how much the logit falls from one atom beyond the former support to the next."""
_BEYOND = 0.05
"""Probability beyond an end of the former support, at most that of the end times this, where it no longer falls."""


def move_atoms(module: tf.Module, before: tf.Tensor, after: tf.Tensor, due: Any) -> None:
    """Changes linear layers of logits over atoms so that their distributions remain about the same.

    The logit of an atom is that of its value in the former support, linear between atoms.  Beyond the support it falls
    from atom to atom, to a floor from which it can still be learned.  Softmax allows no exact map: a mean moves by less
    than an atom.  Layers are those of `atom_layers` of the module and what it consists of; heads of users have none,
    and keep their logits.

    Args:
      module: the network.
      before: `[N]`, the evenly spaced values of the atoms so far, float64.
      after: `[N]`, those from now on.
      due: bool scalar, whether to change anything.
    """
    matrix, offset = moved_logits(before, after)
    parts = [part for part in (module, *module.submodules) if hasattr(part, "atom_layers")]
    variables = [each for part in parts for layer in part.atom_layers for each in layer.weights]

    def assign(offset: tf.Tensor, variable: tf.Variable) -> tf.Operation:
        logits = tf.reshape(tf.cast(variable, tf.float64), (-1, matrix.shape[0]))
        moved = tf.matmul(logits, matrix, transpose_b=True) + offset
        return variable.assign(tf.cast(tf.reshape(moved, variable.shape), variable.dtype))

    # The mean that dueling subtracts contains the offset as well, so that the sum has it once.
    is_bias = [variable.name.endswith("bias:0") for variable in variables]
    if variables:
        offsets = [offset if bias else tf.zeros_like(offset) for bias in is_bias]
        assign_each(list(zip(offsets, variables, strict=True)), assign, due)


def moved_logits(before: tf.Tensor, after: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the matrix `[N, N]` and the offset `[N]` that make logits over `after` of logits over `before`."""
    atoms = before.shape[0]
    place = tf.clip_by_value((after - before[0]) / (before[1] - before[0]), 0.0, atoms - 1.0)
    matrix = tf.maximum(1.0 - tf.abs(place[:, tf.newaxis] - np.arange(float(atoms))), 0.0)
    beyond = tf.abs(after - tf.clip_by_value(after, before[0], before[-1])) / (after[1] - after[0])
    return matrix, -tf.minimum(_FALL * beyond, math.log(atoms / _BEYOND))
