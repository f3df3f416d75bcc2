"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

For discrete actions, the variant of Christodoulou 2019 (https://arxiv.org/abs/1910.07207); for actions of several
parts, see `sac_composed`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Nest, Sample
from ..networks import stateless_random as noise
from ..networks.actions.legal_actions import legal_actions
from ..networks.actor_critics.actor_critic import ActorCritic
from ..networks.actor_critics.actor_critic_factory import actor_critic_networks
from ..networks.actor_critics.composed_actor_critic import ComposedActorCritic
from ..networks.network import Inputs
from ..networks.random_streams import Stream
from ..networks.target_update import copy_weights, move_weights
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .agent_names import agent_name
from .learning.actor_critic_checks import check_networks
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput, Objective
from .learning.optimizers import make_objective
from .learning.reward_normalizer import make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .losses.discrete_soft_actor_critic import discrete_actor_loss, discrete_soft_target, expected_log_prob
from .losses.q_learning import action_value
from .losses.replicas import Mean, global_index, global_mean, valid_mean
from .losses.rewards import learning_reward
from .losses.soft_actor_critic import actor_loss, critic_loss, soft_target, temperature_loss
from .policies.action_checks import check_discrete_or_bounded, check_finite_bounds
from .policies.sac_policy import DiscreteSacPolicy, SacNetworks, SacPolicy
from .sac_composed import ComposedSacPolicy, default_target_entropy, sampled_parts, value_of_taken
from .settings.optimizer_settings import OptimizerSettings
from .settings.sac_settings import SacSettings
from .watched import Gradient, Quantity, Returns

_ENTROPY_SHARE = 0.5
"""Default target of the entropy, as a share of the largest, of the uniform policy.

Christodoulou 2019 has 0.98 (appendix B).  Where actions matter that is more than a policy reaches which also maximizes
the entropy of later actions, and the temperature grows without end (Xu et al. 2021, https://arxiv.org/abs/2112.02852).
"""


class SoftTerms(NamedTuple):
    """The losses of transitions, `[B]` each, 0 where a transition is not valid, and what metrics show of valid ones."""

    critic_loss: tf.Tensor
    actor_loss: tf.Tensor
    temperature_loss: tf.Tensor
    entropy: tf.Tensor
    """`[B]`, entropy of the policy, estimated from sampled actions where they are continuous."""
    value: tf.Tensor
    """`[B]`, the lower of both critics' values of the policy's actions."""
    valid: tf.Tensor
    """bool `[B]`, the valid transitions."""
    gap: Any = ()
    """`[B]`, mean over both critics of CQL's penalty; `()` without one."""


@dataclasses.dataclass(frozen=True)
class Sac(SacSettings, TransitionAgent):
    """The SAC agent."""

    live: ClassVar[tuple[str, ...]] = tuple(
        f"{name}_optimizer.learning_rate" for name in ("actor", "critic", "temperature")
    )
    watched = (
        Gradient("actor_optimizer"),
        Gradient("critic_optimizer"),
        Quantity.TEMPERATURE,
        Quantity.VALUES,
        Returns("critic_optimizer"),
    )

    def check(self, layout: Layout) -> None:
        action = self.limited(layout.spec).action
        if not isinstance(action, dm_specs.DiscreteArray):
            _check_action(agent_name(self), action)
        check_networks(agent_name(self), layout.spec, self.network, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> SacNetworks:
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        learned = actor_critic_networks(spec, **vars(self.network), temperature=self.temperature)
        return SacNetworks(learned, spec, make_reward_normalizer(self))

    def make_policy(self, networks: SacNetworks, mode: Mode) -> SacPolicy:
        kind: type[SacPolicy] = SacPolicy
        if isinstance(networks.actor_critic, ComposedActorCritic):
            kind = ComposedSacPolicy
        elif networks.actor_critic.bounds is None:
            kind = DiscreteSacPolicy
        return kind(networks, self.hold, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_learner(self, networks: SacNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        learned = networks.actor_critic
        # The critic may have other weights than at first, those of another run.
        copy_weights(learned.critic, learned.target_critic)
        steps = self.learner_steps(layout)

        def update_target(steps: tf.Tensor) -> None:
            # The first step is one of the targets and of the policy, too.
            due = (steps - 1) % self.target_update_period == 0
            rate = tf.where(due, tf.constant(self.target_update_rate, tf.float64), 0.0)
            move_weights(learned.critic, learned.target_critic, rate)
            networks.learning.assign(True)

        def delayed(name: str, variables: Sequence[tf.Variable], optimizer: OptimizerSettings) -> Objective:
            objective = make_objective(name, variables, optimizer, max(1, steps // self.policy_delay))
            return objective._replace(period=self.policy_delay)

        return GradientLearner(
            functools.partial(self.loss, learned),
            [
                make_objective("critic_loss", learned.critic.trainable_variables, self.critic_optimizer, steps),
                delayed("actor_loss", learned.policy.trainable_variables, self.actor_optimizer),
                delayed("temperature_loss", [learned.log_alpha], self.temperature_optimizer),
            ],
            strategy,
            updates_per_call=self.updates_per_call,
            after_update=update_target,
            seed=layout.seed,
            accumulate=self.accumulate,
            rewards=networks.returns,
        )

    def loss(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's share of a batch's losses (section 5) and metrics.

        Args:
          networks: policy, critics and temperature.
          sample: transitions `[2, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of the sampled actions.
        """
        if networks.normalizer is not None:
            networks.normalizer.update(_observation(sample, 0), leading=1)
        dtype = networks.log_alpha.dtype
        terms = self.terms(networks, sample, seed)
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(terms.valid, dtype)
        losses = {
            "critic_loss": terms.critic_loss,
            "actor_loss": terms.actor_loss,
            "temperature_loss": terms.temperature_loss,
        }
        further = {"entropy": terms.entropy, "value": terms.value}
        if not isinstance(terms.gap, tuple):
            further["conservative_gap"] = terms.gap
        metrics = {name: shown(value) for name, value in {**losses, **further}.items()}
        metrics["temperature"] = Mean(networks.alpha, tf.ones((), dtype))
        return LossOutput({name: mean(value) for name, value in losses.items()}, metrics)

    def terms(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> SoftTerms:
        """Returns the losses of the transitions of a replica's share of a batch; arguments as those of `loss`."""
        return self.losses(networks, sample, seed, self.target(networks, sample, seed))

    def target(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> tf.Tensor:
        """Returns the target `[B]` of the critics: with sampled numbers, or expectations over discrete choices."""
        record, x_tp1 = sample.record, _observation(sample, 1)
        policy, _ = networks.policy.step(Inputs(x_tp1), (), record.first[1])
        known = {
            "r_t": learning_reward(record.reward[0], self.reward_scale, self.reward_clip),
            "discount_t": self.discount * record.discount[0],
            "alpha": networks.alpha,
        }
        if isinstance(networks, ComposedActorCritic):
            numbers, weight, log_prob = sampled_parts(
                policy, _normal(networks.parts.numbers, sample, seed, Stream.TARGET_ACTION)
            )
            values = networks.target_critic(x_tp1, numbers, weight)
            return soft_target(q1_tp1=values.q1, q2_tp1=values.q2, log_prob_tp1=log_prob, **known)
        if networks.bounds is None:
            values = networks.target_critic(x_tp1)
            return discrete_soft_target(q1_tp1=values.q1, q2_tp1=values.q2, log_probs_tp1=policy.log_probs(), **known)
        action, log_prob = policy.sample_and_log_prob(_normal(networks.bounds.size, sample, seed, Stream.TARGET_ACTION))
        values = networks.target_critic(x_tp1, action)
        return soft_target(q1_tp1=values.q1, q2_tp1=values.q2, log_prob_tp1=log_prob, **known)

    def losses(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor, target_t: tf.Tensor) -> SoftTerms:
        """Returns the losses of transitions, given the target `[B]` of the critics."""
        record, x_t = sample.record, _observation(sample, 0)
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        policy, _ = networks.policy.step(Inputs(x_t), (), record.first[0])
        if networks.bounds is None and not isinstance(networks, ComposedActorCritic):
            return self._discrete_losses(networks, policy, sample, target_t, valid_t, x_t)
        return self._sampled_losses(networks, policy, sample, seed, target_t, valid_t, x_t)

    def _sampled_losses(
        self, networks: ActorCritic, policy: Any, sample: Sample, seed: Any, target_t: Any, valid_t: Any, x_t: Nest
    ) -> SoftTerms:
        """Returns the losses of a policy over numbers, sampled once at each observation, and perhaps over choices."""
        action = tree.map_structure(lambda leaf: leaf[0], sample.record.action)
        if isinstance(networks, ComposedActorCritic):
            numbers, weight, log_prob = sampled_parts(
                policy, _normal(networks.parts.numbers, sample, seed, Stream.LEARNED_ACTION)
            )
            taken = value_of_taken(networks, x_t, action, log_prob.dtype)
            sampled = networks.critic(x_t, numbers, weight)
            wanted = default_target_entropy(networks.parts, x_t, _ENTROPY_SHARE, log_prob.dtype)
        else:
            bounds = networks.bounds
            assert bounds is not None
            numbers, log_prob = policy.sample_and_log_prob(_normal(bounds.size, sample, seed, Stream.LEARNED_ACTION))
            taken = networks.critic(x_t, bounds.from_environment(action, log_prob.dtype))
            sampled = networks.critic(x_t, numbers)
            wanted = -float(bounds.size)
        entropy = wanted if self.target_entropy is None else self.target_entropy
        return SoftTerms(
            critic_loss=critic_loss(taken.q1, taken.q2, target_t, valid_t),
            actor_loss=actor_loss(sampled.q1, sampled.q2, log_prob, networks.alpha, valid_t),
            temperature_loss=temperature_loss(networks.alpha, log_prob, entropy, valid_t),
            entropy=-log_prob,
            value=tf.minimum(sampled.q1, sampled.q2),
            valid=valid_t,
        )

    def _discrete_losses(
        self, networks: ActorCritic, policy: Any, sample: Sample, target_t: Any, valid_t: Any, x_t: Nest
    ) -> SoftTerms:
        """Returns the losses of a categorical policy, with expectations over all actions (Christodoulou 2019)."""
        log_probs, values, action = policy.log_probs(), networks.critic(x_t), sample.record.action[0]
        log_prob = expected_log_prob(log_probs)
        legal = legal_actions(x_t)
        number = log_probs.shape[-1] if legal is None else tf.reduce_sum(tf.cast(legal, log_prob.dtype), axis=-1)
        largest = tf.math.log(tf.cast(number, log_prob.dtype))
        entropy = _ENTROPY_SHARE * largest if self.target_entropy is None else self.target_entropy
        lower = tf.minimum(values.q1, values.q2)
        return SoftTerms(
            critic_loss=critic_loss(
                action_value(values.q1, action), action_value(values.q2, action), target_t, valid_t
            ),
            actor_loss=discrete_actor_loss(values.q1, values.q2, log_probs, networks.alpha, valid_t),
            temperature_loss=temperature_loss(networks.alpha, log_prob, entropy, valid_t),
            entropy=-log_prob,
            value=tf.reduce_sum(tf.exp(log_probs) * lower, axis=-1),
            valid=valid_t,
        )


def _observation(sample: Sample, time: int) -> Nest:
    """Returns the observations before the transitions of a sample, at time 0, or after them."""
    return tree.map_structure(lambda leaf: leaf[time], sample.record.observation)


def _normal(size: int, sample: Sample, seed: tf.Tensor, stream: Stream) -> Any:
    """Returns the noise `[B, D]` of the numbers of sampled actions."""
    if not size:
        return ()
    index = global_index(tf.shape(sample.record.reward)[1])
    return noise.standard_normal(seed, stream, index, (size,), tf.keras.backend.floatx())


def _check_action(name: str, action: Nest) -> None:
    """Raises `CallboardError` unless all parts of an action are discrete or arrays of floats with finite bounds."""
    check_discrete_or_bounded(name, action)
    for leaf in tree.flatten(action):
        if not isinstance(leaf, dm_specs.DiscreteArray | specs.MultiDiscreteArray):
            check_finite_bounds(name, leaf)
