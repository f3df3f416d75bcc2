"""Gradients that actors compute from their own timesteps, and write in their place."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ...data import Layout, Nest, Record, Sample
from ...replay import DiscountedReturns, GradientItem, GradientQueue, GradientQueueWriter, sequence_spec, stacked_sample
from ...transitions import valid_transitions
from ..fast_function import CompiledFunction, as_arrays
from .gradient_step import LossOutput, divided


class GradientWriter:
    """A writer that computes a gradient every T timesteps, at the weights that act, and writes it.

    Args:
      writer: writes to the queue.
      queue: the queue's replay kind.
      layout: the run's layout, with record and state.
      loss: takes a `Sample` of T transitions of the actor's B environments.
      variables: those that the gradient is with respect to.
      stack: number of frames in a stack.
    """

    def __init__(
        self,
        writer: GradientQueueWriter,
        queue: GradientQueue,
        layout: Layout,
        loss: Callable[[Sample], LossOutput],
        variables: Sequence[tf.Variable],
        stack: int = 1,
    ):
        self._writer = writer
        self._queue = queue
        self._loss = loss
        self._stack = stack
        self._variables = variables
        self._compute = CompiledFunction(self._gradient, sequence_spec(layout, queue.length, layout.envs_per_actor))
        self._records: list[Record] = []
        discount = queue.returns_discount
        self._returns = None if discount is None else DiscountedReturns(discount, layout.envs_per_actor)
        self._returns_of_block: list[np.ndarray] = []
        self._state: Nest = ()

    @property
    def items_written(self) -> int:
        return self._writer.items_written

    def append(self, record: Record, state: Nest) -> None:
        """Adds a timestep, a `Record` of arrays `[B, ...]`, and the recurrent state before it.

        The last observation of a block is the first of the next one, so a gradient is computed every T timesteps.
        """
        if not self._records:
            self._state = tree.map_structure(np.array, state)
        self._records.append(tree.map_structure(np.copy, record))
        if self._returns is not None:
            self._returns_of_block.append(self._returns.after(record))
        if len(self._records) > self._queue.length:
            self._write_gradient()
            del self._records[:-1], self._returns_of_block[:-1]
            self._state = tree.map_structure(np.array, state)

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        return self._writer.ready(timeout, max_pending)

    def close(self) -> None:
        self._writer.close()

    def _write_gradient(self) -> None:
        rows: Record = tree.map_structure(lambda *leaves: np.stack(leaves), *self._records)
        chosen = tree.map_structure(lambda leaf: leaf[:-1], rows)
        record = chosen._replace(observation=rows.observation, first=rows.first, last=rows.last)
        gradient, metrics = as_arrays(self._compute(Sample(record, self._state)))
        observation = record.observation if self._queue.keeps_observations else ()
        valid = valid_transitions(record.first, record.last, record.discount)
        returns = () if self._returns is None else np.stack(self._returns_of_block[:-1])
        self._writer.append(GradientItem((), gradient, metrics, record.version, valid, observation, returns))

    def _gradient(self, sample: Sample) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the gradient, flat, and the loss with the other metrics in the order of their names."""
        sample = stacked_sample(sample, self._stack)
        with tf.GradientTape() as tape:
            output = self._loss(sample)
        parts = tape.gradient(output.loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradient = tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
        # A learner step takes one gradient, so that its means are those of this block.
        metrics = divided(output.metrics)
        return gradient, tf.stack([output.loss, *(metrics[name] for name in sorted(metrics))])


def with_gradient(value: Any, gradient: tf.Tensor, variables: Sequence[tf.Variable]) -> tf.Tensor:
    """Returns a scalar that has this value, and this gradient with respect to the variables.

    Args:
      value: the scalar.
      gradient: `[P]`, flat, as `GradientWriter` computes it.
      variables: their sizes add up to P.
    """
    parts = tf.split(gradient, [variable.shape.num_elements() for variable in variables])
    changes = [
        tf.reduce_sum(part * tf.reshape(variable - tf.stop_gradient(variable), [-1]))
        for part, variable in zip(parts, variables, strict=True)
    ]
    return tf.stop_gradient(value) + tf.add_n(changes)
