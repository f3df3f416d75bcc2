"""An optimizer with another learning rate for some of its variables."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf


class ScaledRate(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule times a factor."""

    def __init__(self, schedule: Any, factor: float):
        self.schedule = schedule
        self.factor = factor

    def __call__(self, step: Any) -> Any:
        return self.factor * self.schedule(step)

    def get_config(self) -> dict[str, Any]:
        return {"schedule": self.schedule, "factor": self.factor}


class SplitOptimizer(tf.Module):
    """Two optimizers, of which one has the learning rate of the other times a factor, with the interface of one.

    Args:
      optimizer: for all other variables.
      scaled: of the same kind, for the variables with a learning rate of their own.
      variables: those variables.
      factor: ratio of the learning rates, for rates that the learner assigns.
    """

    def __init__(self, optimizer: Any, scaled: Any, variables: Iterable[tf.Variable], factor: float):
        super().__init__()
        self.optimizer = optimizer
        self.scaled = scaled
        self._scaled_ids = frozenset(map(id, variables))
        self._factor = factor

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the first optimizer; an assignment sets both."""
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        self.optimizer.learning_rate = rate
        self.scaled.learning_rate = rate * self._factor

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Creates the optimizers' variables."""
        others, scaled = self._split(variables, variables)
        self.optimizer.build(others)
        self.scaled.build(scaled)

    def apply_gradients(self, gradients_and_variables: Iterable[tuple[Any, tf.Variable]], **options: Any) -> None:
        """Makes a step with both, as `tf.keras.optimizers.Optimizer.apply_gradients`."""
        pairs = list(gradients_and_variables)
        for optimizer, part in zip(
            (self.optimizer, self.scaled), self._split(pairs, [variable for _, variable in pairs]), strict=True
        ):
            if part:
                optimizer.apply_gradients(part, **options)

    def _split(self, items: Sequence[Any], variables: Sequence[tf.Variable]) -> tuple[list[Any], list[Any]]:
        parts: tuple[list[Any], list[Any]] = ([], [])
        for item, variable in zip(items, variables, strict=True):
            parts[id(variable) in self._scaled_ids].append(item)
        return parts
