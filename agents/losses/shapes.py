"""Shape checks for the arguments of this package's functions."""

from typing import Any

import tensorflow as tf


def check_ranks(rank: int, **tensors: Any) -> None:
    """Checks that tensors have the rank `rank`; otherwise broadcasting could silently give wrong results.

    Raises:
      ValueError: if a rank differs; the message names the tensors.
    """
    wrong = {name: tensor.shape for name, tensor in tensors.items() if tensor.shape.rank not in (rank, None)}
    if wrong:
        found = ", ".join(f"{name} has shape {shape}" for name, shape in wrong.items())
        raise ValueError(f"Expected tensors of rank {rank}: {found}.")


def check_same_shape(**tensors: Any) -> None:
    """Checks that tensors have the same shape, as far as shapes are known.

    Raises:
      ValueError: if shapes differ; the message names the tensors.
    """
    shapes = {name: tf.TensorShape(tensor.shape) for name, tensor in tensors.items()}
    reference = next(iter(shapes.values()))
    if not all(shape.is_compatible_with(reference) for shape in shapes.values()):
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"Expected tensors of the same shape: {found}.")
