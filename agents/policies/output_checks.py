"""Checks of what policies of users return, made while they are traced."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ...errors import CallboardError
from ...networks.tensor_words import tensors_text

_SEE = "; see `Policy` in agents/agent.py"


def checked_policy(policy: Any, action: Nest, state: Nest) -> Callable[..., tuple[Nest, Nest, Nest]]:
    """Returns a policy that raises `CallboardError` where the one given returns something else than a policy does.

    Args:
      policy: the policy.
      action: spec of the environment's action.
      state: `tf.TensorSpec`s `[B, ...]` of its recurrent state.
    """
    name = type(policy).__name__
    expected = tree.map_structure(
        lambda leaf: tf.TensorSpec((None, *leaf.shape), leaf.dtype), specs.tensor_spec(action)
    )

    def checked(*arguments: Any) -> tuple[Nest, Nest, Nest]:
        outputs = policy(*arguments)
        if not isinstance(outputs, tuple) or len(outputs) != 3:
            raise CallboardError(f"policy {name} returns {tensors_text(outputs)}, not (action, extras, state){_SEE}")
        _check(f"policy {name}: the action", outputs[0], expected)
        _check(f"policy {name}: the state", outputs[2], state)
        size = tree.flatten(outputs[0])[0].shape[0] if tree.flatten(outputs[0]) else None
        for path, leaf in tree.flatten_with_path(outputs[1]):
            where = "".join(f"[{key!r}]" for key in path)
            shape = getattr(leaf, "shape", None)
            if shape is None or not tf.TensorShape(shape).is_compatible_with((size, *tf.TensorShape(shape)[1:])):
                raise CallboardError(
                    f"policy {name}: extras{where} are {tensors_text(leaf)}, not a tensor [B, ...]{_SEE}"
                )
        return outputs

    return checked


def _check(what: str, found: Nest, expected: Nest) -> None:
    try:
        tree.assert_same_structure(found, expected)
    except (TypeError, ValueError):
        raise CallboardError(f"{what} is {tensors_text(found)}, and must be {tensors_text(expected)}{_SEE}") from None
    for leaf, spec in zip(tree.flatten(found), tree.flatten(expected), strict=True):
        fits = hasattr(leaf, "shape") and spec.shape.is_compatible_with(leaf.shape) and leaf.dtype == spec.dtype
        if not fits:
            raise CallboardError(f"{what} is {tensors_text(found)}, and must be {tensors_text(expected)}{_SEE}")
