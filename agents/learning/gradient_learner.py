"""A learner that applies gradients of one or several losses, with one or several updates per call."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tree

from ...data import Priorities, Sample, Update
from ...errors import CallboardError
from ...networks.tensor_words import tensors_text
from ...transitions import valid_transitions
from ..fast_function import CompiledOnFirstCall, compiled_by_xla, compiles_by_xla
from ..losses.replicas import valid_mean
from .decaying_rate import continue_decay
from .gradient_step import GradientStep, LossOutput, Objective, check_loss_output
from .periodic_reset import PeriodicReset
from .reward_normalizer import RewardNormalizer

Loss = Callable[..., LossOutput]


class GradientLearner(tf.Module):
    """A learner whose update is one gradient step on one batch.

    An update does not depend on the number of replicas, see `LossOutput` and `GradientStep`.

    Every call into TensorFlow has an overhead of some tenths of a millisecond of Python, as long as an update of a
    small network takes.  To amortize it, one call of `step` can make several updates, one after the other.

    Args:
      loss: takes one replica's share of a batch, a `Sample`, and with `seed` also an int64 `[2]`.
      objectives: the losses, and what they train.
      strategy: the strategy in whose scope the networks and the optimizers were created.
      updates_per_call: updates that `step` makes.
      after_update: called after every update with the number of updates made so far, int64; for target networks.
      seed: the run's seed, for losses that sample: the loss then also gets a seed that differs for every batch.
      accumulate: batches in an update.  If an element of the dataset holds more than one batch (`updates_per_call`
        times `accumulate`), they are stacked along a new first axis.
      rewards: normalizes the rewards of every batch before its loss; None leaves them unchanged.
      reset: called before the updates of every call, to reset the networks; None for never.
    """

    def __init__(
        self,
        loss: Loss,
        objectives: Sequence[Objective],
        strategy: tf.distribute.Strategy,
        updates_per_call: int = 1,
        after_update: Callable[[tf.Tensor], None] | None = None,
        seed: int | None = None,
        accumulate: int = 1,
        rewards: RewardNormalizer | None = None,
        reset: PeriodicReset | None = None,
    ):
        super().__init__()
        self._loss = loss
        self._strategy = strategy
        self._updates_per_call = updates_per_call
        self._after_update = after_update
        self._seed = seed
        self._accumulate = accumulate
        self._rewards = rewards
        # Attributes, so that they are saved in checkpoints.
        self.optimizers = [objective.optimizer for objective in objectives]
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        self._gradient_step = GradientStep(objectives, strategy, accumulate)
        self._reset = reset
        if reset is not None:
            reset.begin(self.optimizers)
        self._call = _CompiledByKey(self._updates)

    def step(self, iterator: Iterator[Any]) -> Update:
        """Learns from the next element of `iterator`.

        Returns:
          The priorities of all updates, in order, and the newest value of each metric.
        """
        steps = int(self.steps.numpy()) if self._gradient_step.periodic or self._reset is not None else 0
        due = tuple(self._gradient_step.due(steps + number) for number in range(self._updates_per_call))
        batches = next(iterator)
        if self._reset is not None:
            self._reset(steps, self.optimizers)
        metrics, priorities = self._call(due, batches)
        finite = tuple(name for name in self._gradient_step.finite if name in metrics)
        return Update(metrics, priorities or None, self._updates_per_call, finite)

    def continue_decay(self) -> bool:
        """Lets learning rates continue where a restored checkpoint ends; returns whether any rises from there."""
        return any([continue_decay(optimizer) for optimizer in self.optimizers])

    def _updates(self, due: Sequence[tuple[str, ...]], batches: Any) -> tuple[dict[str, tf.Tensor], Any]:
        samples = [batches] if len(due) * self._accumulate == 1 else self._strategy.run(_unstacked, args=(batches,))
        if len(due) == 1:
            return self._update(due[0], samples)
        # Traced once for all batches of which the same losses are due.
        updates = {one: tf.function(functools.partial(self._update, one), autograph=False) for one in set(due)}
        first = [number * self._accumulate for number in range(len(due))]
        each = [updates[one](samples[begin : begin + self._accumulate]) for one, begin in zip(due, first, strict=True)]
        metrics = {name: value for one, _ in each for name, value in one.items()}
        return metrics, tree.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *(made for _, made in each))

    def _update(self, due: tuple[str, ...], samples: Sequence[Sample]) -> tuple[dict[str, tf.Tensor], Any]:
        """Makes one update from as many batches as it accumulates."""
        steps = self.steps.read_value()
        metrics, priorities = self._gradient_step(self._replica_loss, samples, steps, due=due)
        self.steps.assign_add(1)
        if self._after_update is not None:
            # Only after all replicas have used the target network: on two devices, one was seen to move its target too
            # early.
            with tf.control_dependencies(tree.flatten((metrics, priorities))):
                self._after_update(steps + 1)
        return metrics, priorities

    def _replica_loss(self, samples: Sequence[Sample], steps: tf.Tensor, microbatch: int = 0) -> LossOutput:
        sample = samples[microbatch]
        batch = steps * self._accumulate + microbatch
        seed = () if self._seed is None else (tf.stack([tf.constant(self._seed, tf.int64), batch]),)
        if self._rewards is not None:
            sample = self._rewards.normalized(sample)
        output = self._loss(sample, *seed)
        check_loss_output(output)
        age = tf.maximum(steps - tf.cast(sample.record.version[..., 1], tf.int64), 0)
        lag = valid_mean(_valid_of(sample, age), tf.as_dtype(tf.keras.backend.floatx()))(age)
        if "policy_lag" in output.metrics:
            raise CallboardError("the loss has a metric with a name of the learner's own (policy_lag): rename it")
        if output.priorities is not None and not _has_shape_of(sample.info.key, output.priorities):
            raise CallboardError(
                f"the priorities of a LossOutput are one number for each item, {sample.info.key.shape}, and these are "
                f"{tensors_text(output.priorities)}"
            )
        priorities = output.priorities
        if priorities is not None:
            priorities = Priorities(sample.info.key, sample.info.shard, priorities, sample.info.env)
        return output._replace(metrics={**output.metrics, "policy_lag": lag}, priorities=priorities)


def _has_shape_of(keys: tf.Tensor, priorities: Any) -> bool:
    if not hasattr(priorities, "shape"):
        return False
    shape = tf.TensorShape(priorities.shape)
    return shape.rank in (None, 1) and shape.is_compatible_with(keys.shape)


def _valid_of(sample: Sample, age: tf.Tensor) -> Any:
    """Returns which of the transitions of `age` are valid; all where the records have no episodes."""
    first, last, discount = sample.record.first, sample.record.last, sample.record.discount
    if isinstance(first, tuple):
        return tf.ones(tf.shape(age), tf.bool)
    return valid_transitions(first, last, discount)


def _unstacked(batches: Sample) -> list[Sample]:
    """Returns the batches that are stacked along the first axis."""
    leaves = zip(*(tf.unstack(leaf) for leaf in tree.flatten(batches)), strict=True)
    return [tree.unflatten_as(batches, each) for each in leaves]


class _CompiledByKey:
    """A function of a key and batches, compiled for each key, that adds the metrics that only earlier calls had."""

    def __init__(self, function: Callable[..., tuple[dict[str, tf.Tensor], Any]]):
        self._function = function
        self._by_xla = compiles_by_xla()
        self._compiled: dict[Any, CompiledOnFirstCall] = {}
        self._metrics: dict[str, tf.Tensor] = {}

    def __call__(self, key: Any, batches: Any) -> tuple[dict[str, tf.Tensor], Any]:
        if key not in self._compiled:
            with compiled_by_xla(self._by_xla):
                self._compiled[key] = CompiledOnFirstCall(functools.partial(self._function, key))
        metrics, priorities = self._compiled[key](batches)
        self._metrics = {**self._metrics, **metrics}
        return dict(self._metrics), priorities
