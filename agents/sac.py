"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

For discrete actions, the variant of Christodoulou 2019 (https://arxiv.org/abs/1910.07207); what differs between kinds
of actions is in `soft_actions`.  Settings make of it REDQ, TQC, DroQ and CrossQ, see docs/sac.md.
"""

import contextlib
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
from ..networks.actor_critics.actor_critic import ActorCritic
from ..networks.actor_critics.actor_critic_factory import actor_critic_networks
from ..networks.network import Inputs
from ..networks.random_streams import Stream, stream_seed
from ..networks.stochastic_layers import sampling
from ..networks.target_update import move_weights
from ..networks.torsos.batch_renormalization import batch_statistics
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .agent_names import agent_name
from .learning.actor_critic_checks import check_critics, check_crossq, check_networks
from .learning.critic_values import critics_loss, mean_values, target_value
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput, Objective
from .learning.optimizers import make_objective
from .learning.periodic_reset import PeriodicReset
from .learning.reward_normalizer import make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .losses.n_step import n_step_window, take_along_time
from .losses.replicas import Mean, global_index, global_mean, valid_mean
from .losses.rewards import learning_reward
from .losses.soft_actor_critic import actor_loss, soft_rewards, soft_target, temperature_loss
from .policies.action_checks import check_discrete_or_bounded, check_finite_bounds
from .policies.sac_policy import SacNetworks, SacPolicy
from .settings.optimizer_settings import OptimizerSettings
from .settings.sac_settings import SacSettings
from .soft_actions import soft_actions
from .watched import Gradient, Quantity, Returns


class Later(NamedTuple):
    """The last observation of each window, what the policy does there, and the returns up to it; leaves `[B, ...]`."""

    observation: Nest
    choice: Nest
    """The policy's actions there, as `soft_actions.Sampled.choice`."""
    log_prob: Any
    returns: Any
    """The discounted sum of rewards, and of the entropy on the way."""
    discount: Any
    """By which the value there is multiplied."""


class SoftTerms(NamedTuple):
    """The losses of transitions, `[B]` each, 0 where a transition is not valid, and what metrics show of valid ones."""

    critic_loss: tf.Tensor
    actor_loss: tf.Tensor
    temperature_loss: tf.Tensor
    entropy: tf.Tensor
    """`[B]`, entropy of the policy, estimated from sampled actions where they are continuous."""
    value: tf.Tensor
    """`[B]`, the value of the policy's actions from which it learns."""
    valid: tf.Tensor
    """bool `[B]`, the valid transitions."""
    gap: Any = ()
    """`[B]`, mean over the critics of CQL's penalty; `()` without one."""


@dataclasses.dataclass(frozen=True)
class Sac(SacSettings, TransitionAgent):
    """The SAC agent."""

    live: ClassVar[tuple[str, ...]] = tuple(
        f"{name}_optimizer.learning_rate" for name in ("actor", "critic", "temperature")
    )
    # With an update for each step, HalfCheetah-v5 needs many episodes rather than many environments, see docs/sac.md.
    default_envs_per_actor = 1
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
        check_critics(agent_name(self), action, self.critics, self.network)
        if self.crossq:
            check_crossq(self)
        self.check_steps("agent.reset_every", self.reset_every)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> SacNetworks:
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        options: dict[str, Any] = {"temperature": self.temperature, "critics": self.critics, "crossq": self.crossq}
        return SacNetworks(
            actor_critic_networks(spec, **vars(self.network), **options), spec, make_reward_normalizer(self)
        )

    def make_policy(self, networks: SacNetworks, mode: Mode) -> SacPolicy:
        kind = soft_actions(networks.actor_critic).policy
        return kind(networks, self.hold, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_learner(self, networks: SacNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        learned = networks.actor_critic
        learned.begin_targets()
        steps = self.learner_steps(layout)

        def update_target(steps: tf.Tensor) -> None:
            if learned.target_critic is not None:
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
            updates_per_call=self.updates_at_once(layout),
            after_update=update_target,
            seed=layout.seed,
            accumulate=self.accumulate,
            rewards=networks.returns,
            reset=PeriodicReset.of(self, networks, strategy, layout),
        )

    def loss(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's share of a batch's losses (section 5) and metrics.

        Args:
          networks: policy, critics and temperature.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
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
        if not self.crossq:
            return self.losses(networks, sample, seed, self.target(networks, sample, seed))
        # One pass through the critics, so that the statistics of its batch are of both (Bhatt et al. 2024, section 4).
        later, actions, action = self._later(networks, sample, seed), soft_actions(networks), _first_action(sample)
        now = _observation(sample, 0), actions.taken(action, later.log_prob.dtype)
        both = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=0), now, (later.observation, later.choice))
        valid = _valid(sample)
        with batch_statistics(tf.concat([valid, valid], axis=0)):
            taken, after = tf.split(actions.values(networks.critic, *both), 2, axis=1)
        return self.losses(networks, sample, seed, self._target(networks, later, after, seed), taken)

    def target(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> tf.Tensor:
        """Returns the target `[B]` of the critics, or of their quantiles `[B, M]`."""
        later = self._later(networks, sample, seed)
        with self._dropout(sample, seed, 0):
            q = soft_actions(networks).values(networks.target_critic, later.observation, later.choice)
        return self._target(networks, later, q, seed)

    def _later(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> Later:
        """Returns where returns of up to n steps end; the entropy of the policy on the way is part of them."""
        record, actions = sample.record, soft_actions(networks)
        # All observations after the first, [n * B, ...].
        merged = tree.map_structure(lambda leaf: tf.reshape(leaf[1:], (-1, *leaf.shape[2:])), record.observation)
        policy, _ = networks.policy.step(Inputs(merged), (), tf.reshape(record.first[1:], (-1,)))
        seeds = [stream_seed(seed, Stream.WINDOW_TIME, time) for time in range(1, self.n_step)]
        normal = [_normal(actions.numbers, sample, one, Stream.TARGET_ACTION) for one in (*seeds, seed)]
        sampled = actions.sample(policy, tf.concat(normal, axis=0) if actions.numbers else ())
        choice, log_prob = tree.map_structure(
            lambda leaf: tf.reshape(leaf, (self.n_step, -1, *leaf.shape[1:])), tuple(sampled)
        )
        reward = learning_reward(record.reward, self.reward_scale, self.reward_clip)
        steps = n_step_window(
            soft_rewards(reward, log_prob[:-1], networks.alpha),
            self.discount * record.discount,
            valid_transitions(record.first, record.last, record.discount),
        )
        # Of windows that are not valid, the end has no meaning.
        end = tf.maximum(steps.index - 1, 0)
        after = tree.map_structure(lambda leaf: leaf[1:], record.observation)
        observation, choice, log_prob = take_along_time((after, choice, log_prob), end)
        return Later(observation, choice, log_prob, steps.returns, steps.discount)

    def _target(self, networks: ActorCritic, later: Later, q: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        value = soft_actions(networks).mean(later.choice, target_value(self.critics, q, seed))
        return soft_target(later.returns, later.discount, value, later.log_prob, networks.alpha)

    def losses(
        self, networks: ActorCritic, sample: Sample, seed: tf.Tensor, target_t: tf.Tensor, taken: Any = None
    ) -> SoftTerms:
        """Returns the losses of transitions.

        Args:
          networks: as those of `loss`, as for `sample` and `seed`.
          sample: the windows.
          seed: of the sampled actions.
          target_t: the target of the critics, from `target`.
          taken: the critics' outputs for the actions taken, as `soft_actions` has them; None to compute them.
        """
        record, x_t, actions = sample.record, _observation(sample, 0), soft_actions(networks)
        valid_t = _valid(sample)
        with batch_statistics(valid_t):
            policy, _ = networks.policy.step(Inputs(x_t), (), record.first[0])
        choice, log_prob = actions.sample(policy, _normal(actions.numbers, sample, seed, Stream.LEARNED_ACTION))
        taken_choice = actions.taken(_first_action(sample), log_prob.dtype)
        if taken is None:
            with self._dropout(sample, seed, 1):
                taken = actions.values(networks.critic, x_t, taken_choice)
        with self._dropout(sample, seed, 2):
            q = mean_values(self.critics, actions.values(networks.critic, x_t, choice))
        value = actions.mean(choice, (tf.reduce_mean if self.critics.averaged else tf.reduce_min)(q, axis=0))
        wanted = actions.default_entropy(x_t, log_prob.dtype) if self.target_entropy is None else self.target_entropy
        return SoftTerms(
            critic_loss=critics_loss(self.critics, actions.mean(taken_choice, taken), target_t, valid_t),
            actor_loss=actor_loss(value, log_prob, networks.alpha, valid_t),
            temperature_loss=temperature_loss(networks.alpha, log_prob, wanted, valid_t),
            entropy=-log_prob,
            value=value,
            valid=valid_t,
        )

    def _dropout(self, sample: Sample, seed: tf.Tensor, number: int) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which the critics have dropout of their own, if they have any."""
        of_pass = stream_seed(seed, Stream.NETWORK_PASS, number) if self.critics.dropout else None
        return sampling(of_pass, _index(sample))


def _observation(sample: Sample, time: int) -> Nest:
    """Returns the observations of windows at a time; at 0 those before the first transition."""
    return tree.map_structure(lambda leaf: leaf[time], sample.record.observation)


def _valid(sample: Sample) -> tf.Tensor:
    """Returns bool `[B]`, the windows whose first transition is valid."""
    record = sample.record
    return valid_transitions(record.first, record.last, record.discount)[0]


def _first_action(sample: Sample) -> Nest:
    return tree.map_structure(lambda leaf: leaf[0], sample.record.action)


def _index(sample: Sample) -> tf.Tensor:
    """Returns the index of each window in the global batch."""
    return global_index(tf.shape(sample.record.reward)[1])


def _normal(size: int, sample: Sample, seed: tf.Tensor, stream: Stream) -> Any:
    """Returns the noise `[B, D]` of the numbers of sampled actions."""
    if not size:
        return ()
    return noise.standard_normal(seed, stream, _index(sample), (size,), tf.keras.backend.floatx())


def _check_action(name: str, action: Nest) -> None:
    """Raises `CallboardError` unless all parts of an action are discrete or arrays of floats with finite bounds."""
    check_discrete_or_bounded(name, action)
    for leaf in tree.flatten(action):
        if not isinstance(leaf, dm_specs.DiscreteArray | specs.MultiDiscreteArray):
            check_finite_bounds(name, leaf)
