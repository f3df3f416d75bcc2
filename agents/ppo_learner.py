"""The learner of PPO and PQN: each step is an iteration of several epochs over the minibatches of one batch."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..data import Sample, Update
from ..networks.network import Network
from ..replay import raise_if_stopped
from .fast_function import CompiledOnFirstCall
from .learning.decaying_rate import DecayingRate
from .learning.gradient_step import GradientStep, LossOutput, Objective, combined_metrics, divided
from .learning.on_policy import FreshBatches
from .ppo_rollout import select_minibatch


class PpoLearner(tf.Module):
    """A learner whose step is a whole iteration: targets of a batch, then epochs of minibatches (PPO, algorithm 1).

    Data older than `max_policy_lag` is dropped, see `FreshBatches`.

    Args:
      network: the network to train.
      loss: takes a replica's share of a minibatch, and the iteration's `numbers` as scalars by name.
      make_values: returns the values `[T + 1, B]` of an element's observations, before the iteration.
      make_rollout: takes a replica's share of a batch, in elements, and the values of each element.
      optimizer: applies the gradients.
      strategy: the strategy in whose scope networks and optimizer were created.
      learning_rate: returns the learning rate of an iteration, by the number of iterations made before it.
      numbers: returns other numbers of an iteration by name, likewise, which are metrics too.
      elements: number of dataset elements per replica that make up a batch.
      epochs: passes over the batch per iteration.
      minibatches: number of them in an epoch.
      accumulate: minibatches in a gradient step.
      max_policy_lag: age, in iterations, of the oldest weights whose data is learned from.
      target_kl: mean KL divergence over an epoch above which the iteration stops; None for no limit.
      max_gradient_norm: global norm to which gradients are clipped; None for no clipping.
      seed: the run's seed.
    """

    def __init__(
        self,
        network: Network,
        loss: Callable[..., LossOutput],
        make_values: Callable[[Sample], tf.Tensor],
        make_rollout: Callable[[Sequence[Sample], Sequence[tf.Tensor]], Any],
        optimizer: tf.keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        learning_rate: Callable[[int], Any],
        numbers: Callable[[int], Mapping[str, Any]],
        elements: int,
        epochs: int,
        minibatches: int,
        accumulate: int,
        max_policy_lag: int,
        target_kl: float | None,
        max_gradient_norm: float | None,
        seed: int,
    ):
        super().__init__()
        self.optimizer = optimizer
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        self._strategy = strategy
        self._learning_rate = learning_rate
        self._numbers = numbers
        self._epochs = epochs
        self._gradient_steps = minibatches // accumulate
        self._batches = FreshBatches(strategy, elements, max_policy_lag)
        self._target_kl = target_kl
        self._seed = seed
        objective = Objective("loss", network.trainable_variables, optimizer, max_gradient_norm)
        self._gradient_step = gradient_step = GradientStep([objective], strategy, accumulate)

        def minibatch_loss(
            rollout: Any, number: tf.Tensor, seed: tf.Tensor, numbers: Mapping[str, tf.Tensor], microbatch: int = 0
        ) -> LossOutput:
            return loss(select_minibatch(rollout, minibatches, number * accumulate + microbatch, seed), **numbers)

        def in_replicas(function: Any) -> Any:
            # An object of its own: TensorFlow takes the first traces of all functions with one code for retracing.
            return tf.function(functools.partial(_in_replicas, strategy, function), autograph=False)

        self._update = CompiledOnFirstCall(lambda *arguments: gradient_step.undivided(minibatch_loss, *arguments))
        self._means = CompiledOnFirstCall(lambda *each: divided(combined_metrics(each)))
        self._values = in_replicas(make_values)
        self._rollout = in_replicas(make_rollout)
        normalizer = network.normalizer
        self._normalizer_update = None if normalizer is None else in_replicas(normalizer.update)

    def step(self, iterator: Iterator[Any]) -> Update:
        """Takes a batch from `iterator` and makes one iteration."""
        step = int(self.steps.numpy())
        batch = self._batches.take(iterator, step)
        rollout = self._rollout(batch.elements, [self._values(sample) for sample in batch.elements])
        rate, numbers = self._learning_rate(step), self._numbers(step)
        self.optimizer.learning_rate = rate
        of_loss = {name: tf.constant(number) for name, number in numbers.items()}
        for epoch in range(self._epochs):
            seed = tf.constant([self._seed, step * self._epochs + epoch], tf.int64)
            metrics = self._epoch(rollout, seed, of_loss, iterator)
            # The KL divergence is summed over all replicas, so all make the same decision.
            if self._target_kl is not None and float(metrics["approximate_kl"]) > self._target_kl:
                break
        if self._normalizer_update is not None:
            # Not earlier, since the first epoch must start from the network that acted.
            self._normalizer_update(rollout.inputs.observation)
        self.steps.assign_add(1)
        taken = {"epochs": epoch + 1, "policy_lag": batch.policy_lag, "dropped_rollouts": batch.dropped}
        metrics = {**metrics, "learning_rate": rate, **numbers, **taken}
        return Update(metrics, finite=self._gradient_step.finite)

    def continue_decay(self) -> bool:
        """See `GradientLearner`."""
        last = float(tf.convert_to_tensor(self.optimizer.learning_rate))
        rate = self._learning_rate
        return isinstance(rate, DecayingRate) and rate.continue_from(int(self.steps.numpy()), last)

    def _epoch(
        self, rollout: Any, seed: tf.Tensor, numbers: Mapping[str, tf.Tensor], iterator: Iterator[Any]
    ) -> dict[str, Any]:
        """Makes a gradient step on each minibatch, and returns their metrics as those of one batch."""
        each = []
        for number in range(self._gradient_steps):
            raise_if_stopped(iterator)
            metrics, _ = self._update(rollout, tf.constant(number), seed, numbers)
            each.append(metrics)
        return self._means(*each)


def _in_replicas(strategy: tf.distribute.Strategy, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in every replica, with its share of each argument."""
    return strategy.run(function, args=arguments)
