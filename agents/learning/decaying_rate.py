"""A learning rate that decays over a run, and continues where it was if the run is resumed with more steps."""

from typing import Any

import tensorflow as tf

from .split_optimizer import ScaledRate, SplitOptimizer

_SHARE = 0.1
"""Of the steps that are left, those over which a rate rises."""
_PRECISION = 1e-4
"""Of the first rate, what two rates differ in that are the same."""


class DecayingRate(tf.keras.optimizers.schedules.PolynomialDecay):
    """A learning rate that decays linearly to 0 over the learner steps of a run.

    Where a run is resumed with more steps, the rate by its new length is higher than the last one, often 0.  It does
    not jump there: it begins with the last one, and reaches the other within the first tenth of the steps that are
    left.

    Args:
      rate: the rate at step 0, a number or a scalar variable.
      steps: learner steps of the run.
    """

    def __init__(self, rate: Any, steps: int):
        super().__init__(rate, max(1, steps), end_learning_rate=0.0)
        # Not in checkpoints: what follows from the last rate, which is, follows from it again.
        self._missing_share = tf.Variable(0.0, trainable=False)  # Of the planned rate, whatever that changes to.
        self._since = tf.Variable(0, trainable=False, dtype=tf.int64)

    def __call__(self, step: Any) -> tf.Tensor:
        planned = super().__call__(step)
        since = tf.cast(self._since, tf.float32)
        rising = tf.maximum(1.0, _SHARE * (float(self.decay_steps) - since))
        left = tf.clip_by_value(1.0 - (tf.cast(step, tf.float32) - since) / rising, 0.0, 1.0)
        return planned * tf.cast(1.0 - self._missing_share * left, planned.dtype)

    def continue_from(self, step: int, last: float) -> bool:
        """Continues where a checkpoint ends; returns whether the rate is to rise.

        A rate that is to be lower than the last one is so at once.

        Args:
          step: steps made.
          last: rate of the last one.
        """
        planned = float(super().__call__(max(0, step - 1)))
        missing = planned - last if step else 0.0
        rises = missing > _PRECISION * float(tf.convert_to_tensor(self.initial_learning_rate))
        self._missing_share.assign(missing / planned if rises else 0.0)
        self._since.assign(step - 1 if rises else 0)
        return rises


def continue_decay(optimizer: Any) -> bool:
    """Lets the rate of an optimizer that was restored continue from its last one; returns whether it rises."""
    if isinstance(optimizer, SplitOptimizer):
        return any([continue_decay(optimizer.optimizer), continue_decay(optimizer.scaled)])
    rate = optimizer._learning_rate
    last = float(tf.convert_to_tensor(optimizer.learning_rate))
    if isinstance(rate, ScaledRate):
        rate, last = rate.schedule, last / rate.factor
    return isinstance(rate, DecayingRate) and rate.continue_from(int(optimizer.iterations.numpy()), last)
