"""Checks of what the classes of users return: agents, their policies and their learners."""

import numbers
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest, Priorities, Update
from ...errors import CallboardError, type_text
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


def check_module(agent: Any, method: str, made: Any) -> None:
    """Raises `CallboardError` if what a method of an agent has made is no `tf.Module`."""
    if not isinstance(made, tf.Module):
        raise CallboardError(
            f"{type(agent).__name__}.{method} must return a tf.Module, whose variables checkpoints contain, not "
            f"{type_text(made)}; see `Agent` in agents/agent.py"
        )


def check_update(learner: Any, update: Any) -> None:
    """Raises `CallboardError` if the step of a learner has returned something else than a learner does."""
    step = f"learner {type(learner).__name__}: step returns"
    if not isinstance(update, Update):
        raise CallboardError(f"{step} {type_text(update)}, not an Update(metrics, priorities, steps); see data.py")
    if not isinstance(update.metrics, Mapping):
        raise CallboardError(f"{step} metrics that are {type_text(update.metrics)}, not a dict of scalars by name")
    if update.priorities is not None and not isinstance(update.priorities, Priorities):
        raise CallboardError(f"{step} priorities that are {type_text(update.priorities)}, not Priorities or None")
    if not isinstance(update.steps, numbers.Integral) or update.steps < 0:
        raise CallboardError(f"{step} steps that are {update.steps!r}, not the number of learner steps made")
    missing = [name for name in update.finite if name not in update.metrics]
    if missing:
        raise CallboardError(f"{step} {missing[0]!r} in finite, which is none of its metrics")


def plain_metrics(learner: Any, metrics: Mapping[str, Any], reserved: Collection[str]) -> dict[str, float]:
    """Returns the metrics of a learner's step as numbers; waits until they are computed.

    Args:
      learner: the learner, for the message.
      metrics: scalars by name.
      reserved: names that the run has for metrics of its own.

    Raises:
      CallboardError: one is no scalar, or has a name that is no text or reserved.
    """
    numbers_by_name = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or name in reserved:
            problem = "a metric of every run: rename it" if name in reserved else "no text"
            raise CallboardError(f"learner {type(learner).__name__}: the name {name!r} of a metric is {problem}")
        try:
            numbers_by_name[name] = float(value)
        except (TypeError, ValueError):
            raise CallboardError(
                f"learner {type(learner).__name__}: the metric {name} is {tensors_text(value)}, not a scalar"
            ) from None
    return numbers_by_name


def _check(what: str, found: Nest, expected: Nest) -> None:
    try:
        tree.assert_same_structure(found, expected)
    except (TypeError, ValueError):
        raise CallboardError(f"{what} is {tensors_text(found)}, and must be {tensors_text(expected)}{_SEE}") from None
    for leaf, spec in zip(tree.flatten(found), tree.flatten(expected), strict=True):
        fits = hasattr(leaf, "shape") and spec.shape.is_compatible_with(leaf.shape) and leaf.dtype == spec.dtype
        if not fits:
            raise CallboardError(f"{what} is {tensors_text(found)}, and must be {tensors_text(expected)}{_SEE}")
