"""Checks of shapes on entry to the pure functions of this package."""

from typing import Any

import tensorflow as tf


def check_ranks(rank: int, **tensors: Any) -> None:
    """Refuses tensors of another rank, which broadcasting would turn into wrong numbers without a word.

    Raises:
      ValueError: naming the tensors.
    """
    wrong = {name: tensor.shape for name, tensor in tensors.items() if tensor.shape.rank not in (rank, None)}
    if wrong:
        found = ", ".join(f"{name} has shape {shape}" for name, shape in wrong.items())
        raise ValueError(f"Expected tensors of rank {rank}: {found}.")


def check_same_shape(**tensors: Any) -> None:
    """Refuses tensors whose shapes, as far as they are known, differ.

    Raises:
      ValueError: naming the tensors.
    """
    shapes = {name: tf.TensorShape(tensor.shape) for name, tensor in tensors.items()}
    reference = next(iter(shapes.values()))
    if not all(shape.is_compatible_with(reference) for shape in shapes.values()):
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"Expected tensors of the same shape: {found}.")
