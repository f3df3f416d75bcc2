"""Target networks: how their weights follow those that learn.

To be called where a strategy runs a replica, in its cross-replica context, or outside of any strategy.  Each device
copies its own variables: nothing is sent.
"""

from typing import Any

import numpy as np
import tensorflow as tf


def copy_weights(source: tf.Module, target: tf.Module) -> None:
    """target <- source, for all variables (Mnih et al. 2015, algorithm 1).

    Args:
      source: a module that learns.
      target: one of the same making.

    Raises:
      ValueError: if the modules differ in the number or the shapes of their variables.
    """
    _update(source, target, lambda new, old: old.assign(new))


def copy_weights_every(period: int, step: Any, source: tf.Module, target: tf.Module) -> None:
    """`copy_weights` where `step`, an integer scalar, is a multiple of `period`, and nothing otherwise."""
    due = tf.equal(tf.cast(step, tf.int64) % period, 0)

    def copy(new: tf.Variable, old: tf.Variable) -> tf.Tensor:
        def assign() -> tf.Tensor:
            old.assign(new)
            return due

        # The branches return the condition, which is small, and not weights.
        return tf.cond(due, assign, lambda: due)

    _update(source, target, copy)


def move_weights(source: tf.Module, target: tf.Module, rate: Any) -> None:
    """target <- target + rate (source - target), Polyak averaging (Lillicrap et al. 2016, algorithm 1).

    Args:
      source: a module that learns.
      target: one of the same making.
      rate: tau, 0..1, a number or a scalar tensor.

    Raises:
      ValueError: if the modules differ in the number or the shapes of their variables.
    """
    # A Python number would become float32 on its way to float64.
    rate = rate if tf.is_tensor(rate) else np.float64(rate)
    _update(source, target, lambda new, old: old.assign_add(tf.cast(rate, old.dtype) * (new - old)))


def _update(source: tf.Module, target: tf.Module, assign: Any) -> None:
    pairs = list(zip(source.variables, target.variables, strict=True))
    for new, old in pairs:
        if new.shape != old.shape:
            raise ValueError(f"The target's {old.name} has shape {old.shape}, the source's {new.name} {new.shape}.")

    def update(strategy: tf.distribute.Strategy) -> None:
        for new, old in pairs:
            strategy.extended.update(old, lambda old, new: assign(new, old), args=(new,))

    if tf.distribute.in_cross_replica_context():
        update(tf.distribute.get_strategy())
    elif tf.distribute.has_strategy():
        # Variables of several devices are not assigned by one of them alone.
        tf.distribute.get_replica_context().merge_call(update)
    else:
        # The strategy that the variables were made under is not entered, as in the code around a learner's replicas.
        strategy = getattr(pairs[0][1], "distribute_strategy", None) or tf.distribute.get_strategy()
        with strategy.scope():
            update(strategy)
