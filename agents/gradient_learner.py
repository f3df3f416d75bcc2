"""Learning by gradient descent; the update does not depend on the number of replicas."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import tensorflow as tf

from ..data import Update
from .multi_update import MultiUpdate

Loss = Callable[[Any], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]

FINITE = ("loss", "gradient_norm")
"""Metrics of a `GradientLearner` that must be finite."""


class GradientLearner(tf.Module):
    """A learner whose step applies one gradient of one batch.

    An update does not depend on the number of replicas: the loss of a replica is a *sum* over its share of the batch,
    divided by the size of the *global* batch or not at all; gradients are summed over the replicas and then clipped.

    Args:
      loss: takes one replica's share of a batch and returns its part of the loss and of the metrics.  Both add up over
        the replicas to those of the global batch.
      variables: the variables to train.
      optimizer: applies the gradients.
      strategy: the strategy in whose scope the networks and the optimizer were created.
      max_gradient_norm: global norm to which gradients are clipped; None for no clipping.
      updates_per_call: batches that `step` learns from in one call, see `MultiUpdate`.
    """

    def __init__(
        self,
        loss: Loss,
        variables: Sequence[tf.Variable],
        optimizer: tf.keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        max_gradient_norm: float | None = None,
        updates_per_call: int = 1,
    ):
        super().__init__()
        self._loss = loss
        self._trained = list(variables)
        self.optimizer = optimizer
        self._strategy = strategy
        self._max_gradient_norm = max_gradient_norm
        optimizer.build(self._trained)
        self._compiled = MultiUpdate(self._update, strategy, updates_per_call, finite=FINITE)

    def step(self, iterator: Iterator[Any]) -> Update:
        """Learns from the next element of `iterator`, which holds `updates_per_call` batches."""
        return self._compiled(next(iterator))

    def _update(self, batch: Any) -> dict[str, tf.Tensor]:
        metrics = self._strategy.run(self._update_replica, args=(batch,))
        summed = {
            name: self._strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
            for name, value in metrics.items()
            if name != "gradient_norm"
        }
        # The same in every replica: the norm of the summed gradient.
        summed["gradient_norm"] = self._strategy.experimental_local_results(metrics["gradient_norm"])[0]
        return summed

    def _update_replica(self, batch: Any) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss, metrics = self._loss(batch)
        gradients = tape.gradient(loss, self._trained)
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = tf.linalg.global_norm(gradients)
        if self._max_gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._max_gradient_norm, use_norm=norm)
        self.optimizer.apply_gradients(zip(gradients, self._trained, strict=True), skip_gradients_aggregation=True)
        return {**metrics, "loss": loss, "gradient_norm": norm}


class RMSProp(tf.keras.optimizers.RMSprop):
    """RMSProp as in TensorFlow 1, with moving averages of squared gradients that start at 1.

    Keras starts them at 0, so its first step is `1 / sqrt(1 - rho)` times the learning rate for every parameter,
    however small its gradient.
    """

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        built = getattr(self, "_built", False)
        super().build(var_list)
        if not built:
            for average in self._velocities:
                average.assign(tf.ones_like(average))


def make_optimizer(
    name: Literal["rmsprop", "adam"], learning_rate: float, decay_steps: int | None, decay: float, epsilon: float
) -> tf.keras.optimizers.Optimizer:
    """Creates an optimizer by name.

    Args:
      name: `rmsprop` or `adam`.
      learning_rate: initial learning rate.
      decay_steps: learner steps over which the learning rate decays linearly to 0; None keeps it constant.
      decay: decay of RMSProp's moving average of squared gradients; Adam uses 0.9 and 0.999.
      epsilon: added to the denominator by Adam, and under its square root by RMSProp, as in TensorFlow 1.
    """
    # A schedule even for a constant rate: a learning rate in a variable would be restored from the checkpoint, and a
    # run resumed with another learning rate would continue with the old one.
    last = learning_rate if decay_steps is None else 0.0
    rate = tf.keras.optimizers.schedules.PolynomialDecay(
        learning_rate, max(1, decay_steps or 1), end_learning_rate=last
    )
    if name == "adam":
        return tf.keras.optimizers.Adam(rate, epsilon=epsilon, jit_compile=False)
    return RMSProp(rate, rho=decay, epsilon=epsilon, jit_compile=False)
