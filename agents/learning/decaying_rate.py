"""A learning rate that decays over a run, and continues where it was if the run is resumed with more steps."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..agent import Learner
from ..settings.optimizer_settings import OptimizerSettings
from .split_optimizer import ScaledRate, SplitOptimizer

_SHARE = 0.1
"""Of what is left of the run, that over which a rate rises."""
_PRECISION = 1e-4
"""Of the first rate, what two rates differ in that are the same."""


class DecayingRate(tf.keras.optimizers.schedules.PolynomialDecay):
    """A learning rate that decays linearly to 0 over a run.

    Where a run is resumed with more steps, the rate by its new length is higher than the last one, often 0.  It does
    not jump there: it begins with the last one, and reaches the other within the first tenth of what is left.

    Args:
      rate: the rate at step 0, a number or a scalar variable.
      steps: learner steps of the run, for a learner that does not know how much of the run is left.
      left: the part of the run that is left, a variable, as `LiveSettings` has it; None to count learner steps.
    """

    def __init__(self, rate: Any, steps: int, left: Any = None):
        super().__init__(rate, max(1, steps), end_learning_rate=0.0)
        self._left = left
        # Not in checkpoints: what follows from the last rate, which is, follows from it again.
        self._missing_share = tf.Variable(0.0, trainable=False)  # Of the planned rate, whatever that changes to.
        self._since = tf.Variable(1.0, trainable=False)  # What was left then.

    def __call__(self, step: Any) -> tf.Tensor:
        planned = self._planned(step)
        rising = tf.maximum(1.0 / float(self.decay_steps), _SHARE * self._since)
        missing = tf.clip_by_value(1.0 - (self._since - self._left_at(step)) / rising, 0.0, 1.0)
        return planned * tf.cast(1.0 - self._missing_share * missing, planned.dtype)

    def _planned(self, step: Any) -> tf.Tensor:
        """Returns the rate by the length of the run."""
        if self._left is None:
            return super().__call__(step)
        rate = tf.convert_to_tensor(self.initial_learning_rate)
        return rate * tf.cast(self._left, rate.dtype)

    def _left_at(self, step: Any) -> tf.Tensor:
        """Returns the part of the run that is left, float32."""
        if self._left is None:
            return 1.0 - tf.cast(step, tf.float32) / float(self.decay_steps)
        return tf.convert_to_tensor(self._left)

    def continue_from(self, step: int, last: float) -> bool:
        """Continues where a checkpoint ends; returns whether the rate is to rise.

        A rate that is to be lower than the last one is so at once.

        Args:
          step: steps made.
          last: rate of the last one.
        """
        planned = float(self._planned(max(0, step - 1)))
        missing = planned - last if step else 0.0
        rises = missing > _PRECISION * float(tf.convert_to_tensor(self.initial_learning_rate))
        self._missing_share.assign(missing / planned if rises else 0.0)
        self._since.assign(self._left_at(step - 1) if rises else 1.0)
        return rises


def continue_decay_of(learner: Learner) -> bool:
    """Calls a learner's `continue_decay`, which does what that of this module does; False for a learner without one."""
    return getattr(learner, "continue_decay", bool)()


def continue_decay(optimizer: Any) -> bool:
    """Lets the rate of an optimizer that was restored continue from its last one; returns whether it rises."""
    if isinstance(optimizer, SplitOptimizer):
        return any([continue_decay(optimizer.optimizer), continue_decay(optimizer.scaled)])
    rate = optimizer._learning_rate
    last = float(tf.convert_to_tensor(optimizer.learning_rate))
    if isinstance(rate, ScaledRate):
        rate, last = rate.schedule, last / rate.factor
    return isinstance(rate, DecayingRate) and rate.continue_from(int(optimizer.iterations.numpy()), last)


def left_of_run(decays: Any) -> Any:
    """Returns the part of the run that is left, where `LiveSettings` has put it in the place of a flag; else None."""
    return None if isinstance(decays, bool) else decays


def rate_by_step(optimizer: OptimizerSettings, steps: int) -> Callable[[int], Any]:
    """Returns the learning rate by the number of learner steps made before, which decays if the settings say so.

    Args:
      optimizer: settings of the optimizer.
      steps: learner steps of the run.
    """
    rate, decays = optimizer.learning_rate, optimizer.learning_rate_decay
    return DecayingRate(rate, steps, left_of_run(decays)) if decays is not False else lambda step: rate * 1.0
