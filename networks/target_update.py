"""Updates of target networks from online networks.

Call these functions in a replica context, in the cross-replica context, or outside of any strategy.  Each device copies
its own variables, without communication.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def copy_weights(source: tf.Module, target: tf.Module) -> None:
    """Copies all variables: target <- source (Mnih et al. 2015, algorithm 1).

    Args:
      source: the online module.
      target: a module with the same architecture.

    Raises:
      ValueError: if the modules differ in the number or shapes of their variables.
    """
    _update(source, target, lambda new, old: old.assign(new))


def copy_weights_every(period: int, step: Any, source: tf.Module, target: tf.Module) -> None:
    """Calls `copy_weights` if `step`, an integer scalar, is a multiple of `period`; otherwise does nothing."""
    due = tf.equal(tf.cast(step, tf.int64) % period, 0)
    _update(source, target, lambda new, old: old.assign(new), due)


def move_weights(source: tf.Module, target: tf.Module, rate: Any) -> None:
    """Moves target weights by Polyak averaging: target <- target + rate (source - target).

    Lillicrap et al. 2016, algorithm 1.

    Args:
      source: the online module.
      target: a module with the same architecture.
      rate: tau, 0..1, a number or a scalar tensor.

    Raises:
      ValueError: if the modules differ in the number or shapes of their variables.
    """
    # `tf.cast` converts a Python number to float32 before float64.
    rate = rate if tf.is_tensor(rate) else np.float64(rate)
    _update(source, target, lambda new, old: old.assign_add(tf.cast(rate, old.dtype) * (new - old)))


@tf.autograph.experimental.do_not_convert
def _update(source: tf.Module, target: tf.Module, assign: Any, due: tf.Tensor | None = None) -> None:
    pairs = list(zip(source.variables, target.variables, strict=True))
    for new, old in pairs:
        if new.shape != old.shape:
            raise ValueError(f"the target's {old.name} has shape {old.shape}, the source's {new.name} {new.shape}")

    assign_each(pairs, assign, due)


@tf.autograph.experimental.do_not_convert
def assign_each(pairs: Sequence[tuple[Any, tf.Variable]], assign: Any, due: tf.Tensor | None = None) -> None:
    """Calls `assign(new, variable)` for every pair on each device, if `due`, a boolean scalar, is true or not given."""

    def assign_all(strategy: tf.distribute.Strategy) -> None:
        for new, old in pairs:
            strategy.extended.update(old, lambda old, new: assign(new, old), args=(new,))

    def update(strategy: tf.distribute.Strategy) -> None:
        if due is None:
            assign_all(strategy)
            return

        def assign_where_due() -> tf.Tensor:
            assign_all(strategy)
            return due

        # Both branches return the condition, a scalar, rather than weights.
        tf.cond(due, assign_where_due, lambda: due)

    if tf.distribute.in_cross_replica_context():
        update(tf.distribute.get_strategy())
    elif tf.distribute.has_strategy():
        # A variable with copies on several devices must be assigned from the cross-replica context.
        tf.distribute.get_replica_context().merge_call(update)
    else:
        # Outside of the scope of the variables' strategy, as in code around a learner's replicas: enter it.
        strategy = getattr(pairs[0][1], "distribute_strategy", None) or tf.distribute.get_strategy()
        with strategy.scope():
            update(strategy)
