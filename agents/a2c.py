"""A2C: synchronous advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783)."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ..data import Layout, Sample, Update
from ..errors import CallboardError
from ..networks.factory import check_network, policy_value_network
from ..networks.heads.popart import updated_return_scale
from ..replay import SequenceQueue, check_stack, stacked_spec
from ..specs import EnvironmentSpec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .fast_function import CompiledOnFirstCall
from .learning.exploration_bonus import ExplorationBonus, further, make_bonus, of_loss
from .learning.gradient_step import GradientStep, LossOutput, Objective
from .learning.network_inputs import sequence_inputs
from .learning.on_policy import FreshBatches, check_batch_sizes, joined, newest_data_queue
from .learning.optimizers import make_objective
from .losses.gae import gae, standardized
from .losses.policy_gradient import entropy_loss, policy_gradient_loss, value_loss
from .losses.replicas import global_mean, sum_over_replicas, valid_mean
from .losses.rewards import learning_reward
from .policies.action_checks import check_discrete_or_bounded
from .policies.ppo_policy import PpoNetworks, PpoPolicy
from .settings.a2c_settings import A2CSettings
from .watched import Gradient, Quantity, Returns


class A2CLearner(tf.Module):
    """A learner whose step is one gradient of a batch that the newest weights have made.

    Args:
      loss: takes the elements of a replica's share of a batch.
      objective: what the loss trains.
      strategy: the strategy in whose scope networks and optimizer were created.
      batches: takes the batches.
      accumulate: into how many batches what is taken is divided; their gradients are averaged.
      bonus: the exploration bonus of the loss; None for none.
    """

    def __init__(
        self,
        loss: Callable[..., LossOutput],
        objective: Objective,
        strategy: tf.distribute.Strategy,
        batches: FreshBatches,
        accumulate: int = 1,
        bonus: ExplorationBonus | None = None,
    ):
        super().__init__()
        self.optimizer = objective.optimizer
        self.bonus = bonus
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        self._batches = batches
        self._loss = loss
        self._accumulate = accumulate
        self._gradient_step = gradient_step = GradientStep([objective, *further(bonus)], strategy, accumulate)
        self._update = CompiledOnFirstCall(lambda *elements: gradient_step(self._batch_loss, *elements)[0])

    def step(self, iterator: Iterator[Any]) -> Update:
        """Takes a batch from `iterator` and makes one gradient step."""
        batch = self._batches.take(iterator, int(self.steps.numpy()))
        metrics = self._update(*batch.elements)
        self.steps.assign_add(1)
        taken = {"policy_lag": batch.policy_lag, "dropped_rollouts": batch.dropped}
        return Update({**metrics, **taken}, finite=self._gradient_step.finite)

    def _batch_loss(self, *arguments: Any) -> LossOutput:
        """Returns the loss of the elements of a batch; if there are several batches, the last argument is its index."""
        if self._accumulate == 1:
            return self._loss(*arguments)
        *elements, number = arguments
        size = len(elements) // self._accumulate
        is_last = number == self._accumulate - 1
        return self._loss(*elements[number * size :][:size], seen=elements if is_last else ())


@dataclasses.dataclass(frozen=True)
class A2C(A2CSettings, Agent):
    """The A2C agent."""

    live = ("optimizer.learning_rate", "entropy_cost", "value_cost")
    watched = (Gradient(), Quantity.ENTROPY, Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded("a2c", layout.spec.action)
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        check_batch_sizes(layout, self.unroll_length, self.batch_size, self.accumulate)
        replay = self.make_replay(layout)
        replay.check()
        if self.batch_size // layout.replicas % replay.element_size:
            raise CallboardError(
                f"each learner device takes whole blocks of an actor's environments: make agent.batch_size a multiple "
                f"of {replay.element_size * layout.replicas}, or leave agent.accumulate out"
            )

    def for_agents(self, count: int) -> "A2C":
        return dataclasses.replace(self, batch_size=self.batch_size * count)

    def make_networks(self, layout: Layout) -> PpoNetworks:
        spec = stacked_spec(layout.spec, self.frame_stack)
        network = policy_value_network(spec, **vars(self.network), **self.deviation)
        return PpoNetworks(network, spec, self.normalize_rewards)

    def make_policy(self, networks: PpoNetworks, mode: Mode) -> PpoPolicy:
        return PpoPolicy(networks, mode, self.frame_stack)

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        return self.network.acting_spec(spec)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceQueue:
        return newest_data_queue(self, layout, self.batch_size * self.accumulate)

    def make_learner(self, networks: PpoNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> A2CLearner:
        sequences = self.batch_size * self.accumulate
        steps = layout.max_timesteps // (self.unroll_length * sequences)
        elements = sequences // layout.replicas // self.make_replay(layout).element_size
        network = networks.network
        of_value = (getattr(network, "value_variables", ()), self.value_learning_rate_scale)
        bonus = make_bonus(self, layout, has_values=True)
        return A2CLearner(
            functools.partial(self.loss, networks, **of_loss(bonus)),
            make_objective("loss", network.trainable_variables, self.optimizer, steps, *of_value),
            strategy,
            FreshBatches(strategy, elements, self.max_policy_lag),
            self.accumulate,
            bonus,
        )

    def loss(
        self,
        networks: PpoNetworks,
        *samples: Sample,
        seen: Sequence[Sample] | None = None,
        bonus: ExplorationBonus | None = None,
    ) -> LossOutput:
        """Returns `sequences_loss` of a replica's share of a batch, in elements; updates statistics.

        Args:
          networks: policy and value.
          *samples: the elements.
          seen: those whose observations the statistics then also have; None for these elements.
          bonus: the exploration bonus; None for none.
        """
        sample = joined(samples)
        output = self.sequences_loss(networks, sample, networks.normalized(sample).record.reward, **of_loss(bonus))
        seen = samples if seen is None else seen
        if networks.network.normalizer is not None and seen:
            # Not earlier, since the gradient is that of the policy that acted.
            networks.network.normalizer.update(joined(seen).record.observation)
        return output

    def sequences_loss(
        self, networks: PpoNetworks, sample: Sample, reward: Any, bonus: ExplorationBonus | None = None
    ) -> LossOutput:
        """Returns a replica's share of a batch's loss (section 4, "Asynchronous advantage actor-critic") and metrics.

        Args:
          networks: policy and value.
          sample: sequences of T transitions, time-major as described in `Sample`; the network takes its rewards.
          reward: `[T, B]`, the rewards to learn from, before they are scaled and clipped.
          bonus: the exploration bonus; None for none.
        """
        network, record = networks.network, sample.record
        inputs, state = sequence_inputs(record, sample.state)
        outputs, _ = network.unroll(inputs, state, record.first, training=True)
        head, observation_t = tf.nest.map_structure(lambda leaf: leaf[:-1], (outputs, record.observation))
        value, dtype = outputs.value, outputs.value.dtype
        valid_t = valid_transitions(record.first, record.last, record.discount)
        reward_t = learning_reward(tf.cast(reward, dtype), self.reward_scale, self.reward_clip)
        discount_t = self.discount * tf.cast(record.discount, dtype)
        advantage_t, target_t = gae(value, reward_t, discount_t, valid_t, self.gae_lambda)
        scale_t = updated_return_scale(network, target_t, valid_t, observation_t)
        advantage_t = advantage_t / scale_t
        if bonus is not None:
            measured = bonus.measured(record)
            intrinsic = bonus.intrinsic(measured, record, functools.partial(gae, lambda_=self.gae_lambda))
            measured = measured._replace(target=intrinsic.targets)
            advantage_t += bonus.weighted(measured, intrinsic.advantages)
        if self.normalize_advantages:
            advantage_t = standardized(advantage_t, valid_t, sum_over_replicas, target_t / scale_t)
        chosen = networks.actions.from_record(record.action, record.extras.gaussian)
        log_prob_t, entropy_t = networks.actions.evaluate(head, observation_t, chosen)
        mean = global_mean(self.unroll_length * self.batch_size, dtype)
        policy_loss_t = policy_gradient_loss(log_prob_t, advantage_t, valid_t)
        value_loss_t = value_loss(head.value / scale_t, target_t / scale_t, valid_t)
        loss = mean(policy_loss_t) + self.value_cost * mean(value_loss_t)
        loss += self.entropy_cost * mean(entropy_loss(entropy_t, valid_t))
        loss += network.regularization_loss()
        shown = valid_mean(valid_t, dtype)
        metrics = {
            "policy_loss": shown(policy_loss_t),
            "value_loss": shown(value_loss_t),
            "entropy": shown(entropy_t),
            "value": shown(head.value),
            "valid_fraction": mean(valid_t),
        }
        output = LossOutput(loss, metrics)
        return output if bonus is None else bonus.trained_too(output, measured, mean)
