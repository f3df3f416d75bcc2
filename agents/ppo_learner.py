"""The learner of PPO and PQN: each step is an iteration of several epochs over the minibatches of one batch."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tree

from ..data import Layout, Sample, Update
from ..networks.input_layers import keep_outputs
from ..networks.network import Network
from ..replay import raise_if_stopped
from .fast_function import CompiledOnFirstCall
from .learning.column_parts import in_column_parts
from .learning.decaying_rate import DecayingRate, rate_by_step
from .learning.exploration_bonus import ExplorationBonus, further
from .learning.gradient_step import GradientStep, LossOutput, Objective, combined_metrics, divided
from .learning.on_policy import FreshBatches, check_minibatches
from .ppo_rollout import select_minibatch
from .variables.frozen_weights import trained


class PpoLearner(tf.Module):
    """A learner whose step is a whole iteration: targets of a batch, then epochs of minibatches (PPO, algorithm 1).

    Data older than `max_policy_lag` is dropped, see `FreshBatches`.

    Args:
      agent: has `IterationSettings`, and settings of an optimizer.
      layout: the run's layout.
      network: the network to train.
      loss: takes a replica's share of a minibatch, and the iteration's `numbers` as scalars by name.
      make_values: returns the values `[T + 1, B]` of an element's observations, before the iteration.
      make_rollout: takes a replica's share of a batch, in elements, and the values of each element.
      optimizer: applies the gradients, with the learning rate of the agent's settings.
      strategy: the strategy in whose scope networks and optimizer were created.
      numbers: returns other numbers of an iteration by name, by the number of iterations made before it, which are
        metrics too.
      target_kl: mean KL divergence over an epoch above which the iteration stops; None for no limit.
      bonus: the exploration bonus of the loss; None for none.

    Raises:
      CallboardError: the data of an iteration cannot be divided into minibatches.
    """

    def __init__(
        self,
        agent: Any,
        layout: Layout,
        network: Network,
        loss: Callable[..., LossOutput],
        make_values: Callable[[Sample], tf.Tensor],
        make_rollout: Callable[[Sequence[Sample], Sequence[tf.Tensor]], Any],
        optimizer: tf.keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        numbers: Callable[[int], Mapping[str, Any]],
        target_kl: float | None = None,
        bonus: ExplorationBonus | None = None,
    ):
        super().__init__()
        check_minibatches(agent, layout, has_memory=bool(tree.flatten(network.state_spec)))
        minibatches, accumulate = agent.minibatches, agent.accumulate
        elements = agent.batch_size // layout.replicas // agent.make_replay(layout).element_size
        self.optimizer = optimizer
        self.bonus = bonus
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        self._strategy = strategy
        self._learning_rate = rate_by_step(agent.optimizer, iterations_of(agent, layout))
        self._numbers = numbers
        self._epochs = agent.epochs
        self._gradient_steps = minibatches // accumulate
        self._batches = FreshBatches(strategy, elements, agent.max_policy_lag)
        self._target_kl = target_kl
        self._seed = layout.seed
        objective = Objective("loss", network.trainable_variables, optimizer, agent.optimizer.max_gradient_norm)
        self._gradient_step = gradient_step = GradientStep([objective, *further(bonus)], strategy, accumulate)

        def minibatch_loss(
            rollout: Any, number: tf.Tensor, seed: tf.Tensor, numbers: Mapping[str, tf.Tensor], microbatch: int = 0
        ) -> LossOutput:
            return loss(select_minibatch(rollout, minibatches, number * accumulate + microbatch, seed), **numbers)

        def in_replicas(function: Any) -> Any:
            # An object of its own: TensorFlow takes the first traces of all functions with one code for retracing.
            return tf.function(functools.partial(_in_replicas, strategy, function), autograph=False)

        self._update = CompiledOnFirstCall(lambda *arguments: gradient_step.undivided(minibatch_loss, *arguments))
        self._means = CompiledOnFirstCall(lambda *each: divided(combined_metrics(each)))
        self._values = in_replicas(functools.partial(_values, make_values))
        self._rollout = in_replicas(make_rollout)
        keep_outputs(network, trained(network.trainable_variables))
        self._normalizer: Any = network.normalizer
        self._normalizer_update = None if self._normalizer is None else in_replicas(self._normalizer.update)

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


def _values(make_values: Callable[[Sample], tf.Tensor], sample: Sample) -> tf.Tensor:
    """Returns the values of an element's observations, of large ones in parts."""
    return in_column_parts(lambda record, state: make_values(Sample(record, state)), sample.record, sample.state)


def iterations_of(agent: Any, layout: Layout) -> int:
    """Returns the number of iterations of a run, at least 1."""
    return max(1, layout.max_timesteps // (agent.unroll_length * agent.batch_size))
