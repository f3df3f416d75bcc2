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
        raise ValueError(f"expected tensors of rank {rank}: {found}")


def check_same_shape(**tensors: Any) -> None:
    """Checks that tensors have the same shape, as far as shapes are known.

    Raises:
      ValueError: if shapes differ; the message names the tensors.
    """
    shapes = {name: tf.TensorShape(tensor.shape) for name, tensor in tensors.items()}
    reference = next(iter(shapes.values()))
    if not all(shape.is_compatible_with(reference) for shape in shapes.values()):
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected tensors of the same shape: {found}")


def check_alike(rank: int, **tensors: Any) -> None:
    """Checks that tensors or arrays have the rank `rank` and the same shape.

    Raises:
      ValueError: otherwise; the message names the tensors.
    """
    tensors = {name: tf.convert_to_tensor(tensor) for name, tensor in tensors.items()}
    check_ranks(rank, **tensors)
    check_same_shape(**tensors)


def where_valid(valid_t: Any, loss_t: tf.Tensor) -> tf.Tensor:
    """Returns `loss_t` with 0 where transitions are not valid, also for values that are not finite there."""
    return tf.where(valid_t, loss_t, tf.zeros_like(loss_t))
