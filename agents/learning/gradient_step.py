"""Losses, and one gradient step on them in all replicas of a strategy."""

import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ...data import Nest
from ...errors import CallboardError
from ...networks.tensor_words import tensors_text
from ..losses.replicas import Mean
from ..variables.frozen_weights import trained


class LossOutput(NamedTuple):
    """The result of a loss for one replica's share of a batch."""

    loss: Any
    """Scalar; with several objectives, a scalar for each by name.  It is a *sum* over the share, divided by the size of
    the *global* batch or not at all, so that the sum over the replicas is the loss of the global batch."""
    metrics: Mapping[str, Any]
    """By name, means over the valid transitions of the global batch (see `losses.replicas.valid_mean`), or scalars that
    add up over the replicas as the loss does.  One with the name of a loss is shown in place of that loss."""
    priorities: Any = None
    """`[B]`, the new priorities of the replica's items; None if replay does not sample by priority."""


def check_loss_output(output: Any) -> None:
    """Raises `CallboardError` if what a loss has returned is no `LossOutput`."""
    if not isinstance(output, LossOutput):
        kind = type(output).__name__
        raise CallboardError(f"a loss returns a LossOutput, not {kind}: LossOutput(loss, metrics)")
    if not isinstance(output.metrics, Mapping):
        kind = type(output.metrics).__name__
        raise CallboardError(f"the metrics of a LossOutput are a dict of numbers by name, not {kind}")
    if _no_scalars(output.metrics):
        raise CallboardError(
            f"the metrics of a LossOutput are scalars by name, not {{{', '.join(_no_scalars(output.metrics))}}}"
        )
    for part in output.loss.values() if isinstance(output.loss, Mapping) else [output.loss]:
        shape = getattr(part, "shape", ())
        if tf.TensorShape(shape).rank not in (None, 0):
            raise CallboardError(
                f"the loss of a LossOutput is a scalar, a sum over the batch, and this one has the shape {shape}"
            )


def _no_scalars(metrics: Mapping[Any, Any]) -> list[str]:
    """Returns the metrics that are no scalars or have no name, such as `'action': float32 (32, 2)`."""

    def is_scalar(value: Any) -> bool:
        no_tensor = () if isinstance(value, numbers.Number) else (1,)
        return tf.TensorShape(getattr(value, "shape", no_tensor)).rank in (None, 0)

    return [
        f"{name!r}: {tensors_text(value)}"
        for name, value in metrics.items()
        if not isinstance(name, str) or not all(map(is_scalar, value if isinstance(value, Mean) else [value]))
    ]


class Objective(NamedTuple):
    """A loss, by its name among the metrics, and what it trains."""

    name: str
    """`loss`, or a name that ends in `_loss`."""
    variables: Sequence[tf.Variable]
    optimizer: tf.keras.optimizers.Optimizer
    max_gradient_norm: float | None = None
    """Global norm to which the loss's gradient is clipped; None for no clipping."""
    period: int = 1
    """Learner steps from one gradient step on the loss to the next.  The steps between leave the variables, and the
    state of their optimizer, as they are."""
    is_sum: bool = False
    """Whether the loss is a sum over its batch, so that gradients of several batches are added instead of averaged."""


class GradientStep:
    """Applies one gradient of each loss that is due; all gradients are taken at the same weights.

    The step does not depend on the number of replicas: gradients are summed over the replicas and then clipped.
    Frozen variables (see `frozen_weights`) are left out; an objective of which all are frozen is only computed.

    Args:
      objectives: the losses.
      strategy: the strategy in whose scope the variables and the optimizers were created.
      accumulate: batches in a step, whose gradients are added or averaged before they are clipped and applied.
    """

    def __init__(self, objectives: Sequence[Objective], strategy: tf.distribute.Strategy, accumulate: int = 1):
        self._accumulate = accumulate
        self._objectives = [objective._replace(variables=trained(objective.variables)) for objective in objectives]
        self._strategy = strategy
        for objective in self._objectives:
            objective.optimizer.build(objective.variables)
        losses = [objective.name for objective in objectives]
        self.finite = (*losses, *map(_norm_name, losses))
        """Names of the metrics that must be finite: the losses and the norms of their gradients."""
        self.periodic = any(objective.period > 1 for objective in objectives)
        """Whether some loss is not due in every step."""

    def due(self, step: int) -> tuple[str, ...]:
        """Returns the names of the losses that are due after `step` learner steps."""
        return tuple(objective.name for objective in self._objectives if step % objective.period == 0)

    def __call__(
        self, loss: Callable[..., LossOutput], *arguments: Any, due: Sequence[str] | None = None
    ) -> tuple[dict[str, tf.Tensor], Nest]:
        """Makes the step; called outside of the replicas, in a `tf.function`.

        Args:
          loss: called in every replica; if a step has several batches for each of them, with its index after the
            arguments.  The leaves of `priorities` may have any structure.
          *arguments: arguments of `loss`; values distributed over the replicas are replaced by each replica's own.
          due: names of the losses whose gradients are applied; None for all.

        Returns:
          The metrics, with all losses and the norms of the gradients that were applied, of all replicas; and the
          priorities of this learner's replicas, concatenated.
        """
        metrics, priorities = self.undivided(loss, *arguments, due=due)
        return divided(metrics), priorities

    def undivided(
        self, loss: Callable[..., LossOutput], *arguments: Any, due: Sequence[str] | None = None
    ) -> tuple[dict[str, Any], Nest]:
        """Makes the step as a call does, and returns means as `Mean`, for `combined_metrics` and `divided`."""
        applied = [objective for objective in self._objectives if due is None or objective.name in due]
        in_replica = functools.partial(self._in_replica, loss, applied)
        parts, packed, norms, priorities = self._strategy.run(in_replica, args=arguments)
        sums = [
            iter(tf.unstack(self._strategy.reduce(tf.distribute.ReduceOp.SUM, vector, axis=None))) for vector in packed
        ]
        kinds = _by_type([self._strategy.experimental_local_results(leaf)[0] for leaf in tree.flatten(parts)])
        metrics = tree.unflatten_as(parts, [next(sums[kind]) for kind in kinds])
        for name, norm in norms.items():
            # The same in every replica: the norm of the summed gradient.
            metrics[name] = self._strategy.experimental_local_results(norm)[0]
        return metrics, tree.map_structure(
            lambda leaf: tf.concat(self._strategy.experimental_local_results(leaf), axis=0), priorities
        )

    def _in_replica(
        self, loss: Callable[..., LossOutput], applied: Sequence[Objective], *arguments: Any
    ) -> tuple[Any, Any, Any, Nest]:
        results = [self._differentiate(loss, applied, *arguments, *([0] if self._accumulate > 1 else []))]
        for microbatch in range(1, self._accumulate):
            # One after the other, so that only one batch takes memory at a time.
            with tf.control_dependencies([leaf for leaf in tree.flatten(results[-1][0]) if leaf is not None]):
                results.append(self._differentiate(loss, applied, *arguments, microbatch))
        gradients, metrics, priorities = _combine(results, applied)
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norms = {}
        for objective, gradient in zip(applied, gradients, strict=True):
            if not objective.variables:
                norms[_norm_name(objective.name)] = tf.zeros((), tree.flatten(metrics[objective.name])[0].dtype)
                continue
            norms[_norm_name(objective.name)] = norm = tf.linalg.global_norm(gradient)
            if objective.max_gradient_norm is not None:
                gradient, _ = tf.clip_by_global_norm(gradient, objective.max_gradient_norm, use_norm=norm)
            objective.optimizer.apply_gradients(
                zip(gradient, objective.variables, strict=True), skip_gradients_aggregation=True
            )
        leaves = tree.flatten(metrics)
        kinds = _by_type(leaves)
        # One reduction for all metrics of a type.
        packed = [
            tf.stack([leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind == number])
            for number in range(1 + max(kinds))
        ]
        return metrics, packed, norms, priorities

    def _differentiate(self, loss: Callable[..., LossOutput], applied: Sequence[Objective], *arguments: Any) -> Any:
        """Returns the gradients of a batch, the metrics with the losses, and the priorities."""
        several = len(self._objectives) > 1
        with tf.GradientTape(persistent=len(applied) > 1) as tape:
            output = loss(*arguments)
            check_loss_output(output)
        if isinstance(output.loss, Mapping) != several or (
            several and any(one.name not in output.loss for one in self._objectives)
        ):
            raise CallboardError(
                f"the loss of a LossOutput is {'a scalar for each of' if several else 'the scalar'} "
                f"{', '.join(one.name for one in self._objectives)}, not {tensors_text(output.loss)}"
            )
        if any(_norm_name(one.name) in output.metrics for one in self._objectives):
            raise CallboardError(
                "the loss has a metric with a name of the learner's own "
                f"({', '.join(_norm_name(one.name) for one in self._objectives)}): rename it"
            )
        losses = output.loss if several else {self._objectives[0].name: output.loss}
        gradients = [tape.gradient(losses[objective.name], objective.variables) for objective in applied]
        if any(
            one.variables and all(part is None for part in gradient)
            for one, gradient in zip(applied, gradients, strict=True)
        ):
            raise CallboardError(
                f"no gradient of {' or '.join(one.name for one in applied)} reaches the variables that it trains: "
                "compute it from the outputs of the networks, without tf.stop_gradient"
            )
        metrics = tree.map_structure(tf.convert_to_tensor, {**losses, **output.metrics})
        return gradients, metrics, () if output.priorities is None else output.priorities


def _combine(results: Sequence[Any], applied: Sequence[Objective]) -> Any:
    """Returns what `_differentiate` returns, of several batches: gradients added or averaged, and combined metrics."""
    if len(results) == 1:
        return results[0]
    all_gradients, all_metrics, all_priorities = zip(*results, strict=True)
    gradients = []
    for objective, batches in zip(applied, zip(*all_gradients, strict=True), strict=True):
        factor = 1.0 if objective.is_sum else 1.0 / len(results)
        by_variable = zip(*batches, strict=True)
        gradients.append([None if each[0] is None else factor * tf.add_n(each) for each in by_variable])
    priorities = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *all_priorities)
    return gradients, combined_metrics(all_metrics), priorities


def combined_metrics(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the metrics of several batches as one: those that are means over all their elements, others averaged."""

    def combined(values: Sequence[Any]) -> Any:
        if isinstance(values[0], Mean):
            return Mean(*map(tf.add_n, zip(*values, strict=True)))
        return tf.add_n(values) / len(values)

    return {name: combined([metrics[name] for metrics in each]) for name in each[0]}


def divided(metrics: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Returns metrics as scalars."""
    return {name: value.value if isinstance(value, Mean) else value for name, value in metrics.items()}


def _by_type(leaves: Sequence[tf.Tensor]) -> list[int]:
    """Returns the position of each tensor's type among the types that they have."""
    types = list(dict.fromkeys(leaf.dtype for leaf in leaves))
    return [types.index(leaf.dtype) for leaf in leaves]


def _norm_name(loss: str) -> str:
    return f"{loss.removesuffix('loss')}gradient_norm"
