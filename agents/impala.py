"""IMPALA: importance-weighted actor-learner architecture (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561)."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from ..data import Layout, Nest, Sample, Timestep
from ..networks.action_policy import DiscretePolicy, action_policy
from ..networks.distributions import Categorical
from ..networks.factory import check_network, policy_value_network
from ..networks.heads.popart import updated_return_scale
from ..networks.network import Network
from ..replay import SequenceQueue, check_stack, stacked_spec
from ..specs import EnvironmentSpec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .agent_names import agent_name
from .learning.exploration_bonus import ExplorationBonus, further, make_bonus, of_loss
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.network_inputs import ActingNetwork, sequence_inputs
from .learning.on_policy import acting_network
from .learning.optimizers import make_objective
from .learning.reward_normalizer import RewardNormalizer, make_reward_normalizer, returns_discount
from .losses.policy_gradient import entropy_loss, policy_gradient_loss, value_loss
from .losses.replicas import global_mean, valid_mean
from .losses.rewards import learning_reward
from .losses.vtrace import VTrace, vtrace
from .policies.action_checks import check_discrete_or_bounded
from .settings.impala_settings import ImpalaSettings
from .watched import Gradient, Quantity, Returns, Watch


class ImpalaExtras(NamedTuple):
    """Values that the behavior policy adds to the record."""

    logits: Any
    """`[B, A]`, the lowest where actions are masked; `()` unless the action is one discrete choice."""
    previous_reward: Any = ()
    """See `ActingNetwork.previous_reward`."""
    log_prob: Any = ()
    """`[B]`, log-probability of the action; `()` if there are logits."""
    gaussian: Any = ()
    """`[B, D]`, numbers of the action before scaling and clipping to the environment's bounds; `()` if it has none."""


class PolicyTerms(NamedTuple):
    """The policy's part of the loss, by transition."""

    loss: tf.Tensor
    """`[T, B]`, 0 where the transition is not valid."""
    metrics: Mapping[str, tf.Tensor]
    """`[T, B]` each, whose means over the valid transitions are further metrics."""


class ImpalaPolicy(tf.Module):
    """Samples actions from the policy head, or takes the most likely action in evaluation."""

    def __init__(self, network: Network, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = network
        self.acting = ActingNetwork(acting_network(network, mode), frame_stack)
        self.actions = action_policy(network.spec, network)
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self.acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self.acting.step(timestep, state)
        actions, observation = self.actions, timestep.observation
        chosen = actions.choose(outputs, observation, slot, seed, best=self._mode == "evaluate")
        previous_reward = self.acting.previous_reward(timestep)
        if isinstance(actions, DiscretePolicy):
            extras = ImpalaExtras(actions.distribution(outputs, observation).logits, previous_reward)
        else:
            log_prob = actions.evaluate(outputs, observation, chosen).log_prob
            extras = ImpalaExtras((), previous_reward, log_prob, actions.numbers(chosen))
        action = actions.to_environment(chosen)
        return action, extras, self.acting.carry(state, action)


@dataclasses.dataclass(frozen=True)
class Impala(ImpalaSettings, Agent):
    """The IMPALA agent."""

    live: ClassVar[tuple[str, ...]] = ("optimizer.learning_rate", "entropy_cost", "baseline_cost")
    watched: ClassVar[tuple[Watch, ...]] = (
        Gradient(),
        Quantity.ENTROPY,
        Quantity.VALUES,
        Quantity.LAG,
        Returns(),
    )

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded(agent_name(self), layout.spec.action)
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> Network:
        spec = stacked_spec(layout.spec, self.frame_stack)
        return policy_value_network(spec, **vars(self.network), **self.deviation)

    def make_policy(self, networks: Network, mode: Mode) -> ImpalaPolicy:
        return ImpalaPolicy(networks, mode, self.frame_stack)

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        return self.network.acting_spec(spec)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceQueue:
        batches = self.updates_per_call * self.accumulate
        return SequenceQueue(
            layout,
            self.unroll_length,
            self.batch_size,
            self.queue_batches,
            batches,
            stack=self.frame_stack,
            returns_discount=returns_discount(self),
        )

    def make_learner(self, networks: Network, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = layout.max_timesteps // (self.unroll_length * self.batch_size * self.accumulate)
        of_value = (getattr(networks, "value_variables", ()), self.value_learning_rate_scale)
        objective = make_objective("loss", networks.trainable_variables, self.optimizer, steps, *of_value)
        returns = make_reward_normalizer(self)
        # The loss of a subclass need not know of normalized rewards.
        normalizing = {} if returns is None else {"returns": returns}
        bonus = make_bonus(self, layout, has_values=True)
        learner = GradientLearner(
            functools.partial(self.loss, networks, **normalizing, **of_loss(bonus)),
            [objective._replace(is_sum=True), *further(bonus)],
            strategy,
            self.updates_per_call,
            accumulate=self.accumulate,
        )
        # Checkpoints contain what a learner refers to.
        learner.returns, learner.bonus = returns, bonus
        return learner

    def loss(
        self,
        network: Network,
        sample: Sample,
        returns: RewardNormalizer | None = None,
        bonus: ExplorationBonus | None = None,
    ) -> LossOutput:
        """Returns a replica's share of a batch's loss (section 4.2) and metrics.

        Args:
          network: computes the policy's parameters and values.
          sample: sequences of T transitions, time-major as described in `Sample`.
          returns: normalizes the rewards; None leaves them unchanged.
          bonus: the exploration bonus; None for none.
        """
        record = sample.record
        # The network takes previous rewards as they are.
        reward = record.reward if returns is None else returns.normalized(sample).record.reward
        if network.normalizer is not None:
            network.normalizer.update(record.observation)
        inputs, state = sequence_inputs(record, sample.state)
        outputs, _ = network.unroll(inputs, state, record.first, training=True)
        dtype, actions, extras = outputs.value.dtype, action_policy(network.spec, network), record.extras
        head, observation_t = tf.nest.map_structure(lambda leaf: leaf[:-1], (outputs, record.observation))
        chosen = actions.from_record(record.action, extras.gaussian)
        log_prob_t, entropy_t = actions.evaluate(head, observation_t, chosen)
        if isinstance(actions, DiscretePolicy):
            behavior_log_prob_t = Categorical(extras.logits).log_prob(record.action)
        else:
            behavior_log_prob_t = extras.log_prob
        reward_t = learning_reward(tf.cast(reward, dtype), self.reward_scale, self.reward_clip)
        valid_t = valid_transitions(record.first, record.last, record.discount)
        log_rho_t = log_prob_t - tf.cast(behavior_log_prob_t, dtype)
        estimate = functools.partial(
            vtrace,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_policy_gradient_rho=self.clip_policy_gradient_rho,
            lambda_=self.lambda_,
        )
        discount_t = self.discount * tf.cast(record.discount, dtype)
        targets = estimate(outputs.value, reward_t, discount_t, log_rho_t, valid_t)
        scale_t = updated_return_scale(network, targets.vs, valid_t, observation_t)
        targets = targets._replace(advantages=targets.advantages / scale_t, td_errors=targets.td_errors / scale_t)
        if bonus is not None:
            measured = bonus.measured(record)
            intrinsic = bonus.intrinsic(measured, record, estimate, log_rho_t=log_rho_t)
            measured = measured._replace(target=intrinsic.vs)
            targets = targets._replace(
                advantages=targets.advantages + bonus.weighted(measured, intrinsic.advantages),
                td_errors=targets.td_errors + bonus.weighted(measured, intrinsic.td_errors),
            )

        transitions = self.unroll_length * self.batch_size
        mean = global_mean(transitions, dtype)
        policy_terms = self.policy_terms(log_prob_t, log_rho_t, targets, valid_t)
        baseline_loss_t = value_loss(outputs.value[:-1] / scale_t, targets.vs / scale_t, valid_t)
        loss = mean(policy_terms.loss) + self.baseline_cost * mean(baseline_loss_t)
        loss += self.entropy_cost * mean(entropy_loss(entropy_t, valid_t))
        # The paper's loss is the sum over time and batch.
        loss = transitions * (loss + network.regularization_loss())
        shown = valid_mean(valid_t, dtype)
        metrics = {
            "policy_loss": shown(policy_terms.loss),
            "baseline_loss": shown(baseline_loss_t),
            "entropy": shown(entropy_t),
            "importance_weight": shown(tf.exp(log_rho_t)),
            "value": shown(outputs.value[:-1]),
            "valid_fraction": mean(valid_t),
            **{name: shown(value_t) for name, value_t in policy_terms.metrics.items()},
        }
        output = LossOutput(loss, metrics)
        return output if bonus is None else bonus.trained_too(output, measured, mean)

    def policy_terms(
        self, log_prob_t: tf.Tensor, log_rho_t: tf.Tensor, targets: VTrace, valid_t: tf.Tensor
    ) -> PolicyTerms:
        """Returns the policy's part of the loss: the policy gradient with V-trace advantages.

        Args:
          log_prob_t: `[T, B]`, log π(a_t|x_t).
          log_rho_t: `[T, B]`, log π(a_t|x_t) - log μ(a_t|x_t), not clipped; anything where `valid_t` is False.
          targets: V-trace's.
          valid_t: bool `[T, B]`.
        """
        return PolicyTerms(policy_gradient_loss(log_prob_t, targets.advantages, valid_t), {})
