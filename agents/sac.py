"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

For discrete actions, the variant of Christodoulou 2019 (https://arxiv.org/abs/1910.07207).
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Nest, Sample
from ..errors import CallboardError
from ..networks import stateless_random as noise
from ..networks.action_bounds import ActionBounds
from ..networks.actor_critic import ActorCritic, actor_critic_networks
from ..networks.discrete_actor_critic import discrete_actor_critic_networks
from ..networks.factory import check_network
from ..networks.network import Inputs
from ..networks.target_update import copy_weights, move_weights
from ..replay import TransitionReplay, check_stack, stacked_spec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner
from .gradient_step import LossOutput
from .losses.discrete_soft_actor_critic import discrete_actor_loss, discrete_soft_target, expected_log_prob
from .losses.q_learning import action_value
from .losses.replicas import global_index
from .losses.rewards import learning_reward
from .losses.soft_actor_critic import actor_loss, critic_loss, soft_target, temperature_loss
from .optimizers import make_objective
from .sac_policy import DiscreteSacPolicy, SacNetworks, SacPolicy
from .sac_settings import SacSettings

_ENTROPY_SHARE = 0.98
"""Default target of the entropy, as a share of the largest, of the uniform policy (Christodoulou 2019, appendix B)."""


class SoftTerms(NamedTuple):
    """The losses of transitions, `[B]` each, 0 where a transition is not valid, and what metrics show."""

    critic_loss: tf.Tensor
    actor_loss: tf.Tensor
    temperature_loss: tf.Tensor
    entropy: tf.Tensor
    """`[B]`, entropy of the policy, estimated from sampled actions where they are continuous."""
    value: tf.Tensor
    """`[B]`, the lower of both critics' values of the policy's actions."""


@dataclasses.dataclass(frozen=True)
class Sac(SacSettings, Agent):
    """The SAC agent."""

    live = tuple(f"{name}_optimizer.learning_rate" for name in ("actor", "critic", "temperature"))

    def check(self, layout: Layout) -> None:
        action = layout.spec.action
        if not isinstance(action, dm_specs.DiscreteArray):
            _check_continuous(action)
        torso = self.network.batch_normalized_torso
        if torso:
            raise CallboardError(
                f"sac does not train the statistics of batch normalization: set agent.network.torso to impala or "
                f"nature, not {torso}"
            )
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> SacNetworks:
        discrete = isinstance(layout.spec.action, dm_specs.DiscreteArray)
        build = discrete_actor_critic_networks if discrete else actor_critic_networks
        spec = stacked_spec(layout.spec, self.frame_stack)
        return SacNetworks(build(spec, **vars(self.network), temperature=self.temperature), spec)

    def make_policy(self, networks: SacNetworks, mode: Mode) -> SacPolicy:
        kind = DiscreteSacPolicy if networks.actor_critic.bounds is None else SacPolicy
        return kind(networks, self.hold, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> TransitionReplay:
        batches = self.updates_per_call * self.accumulate
        return TransitionReplay(layout, self.replay, self.batch_size, batches, stack=self.frame_stack)

    def make_learner(self, networks: SacNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        learned = networks.actor_critic
        # The critic may have other weights than at first, those of another run.
        copy_weights(learned.critic, learned.target_critic)
        steps = int(layout.max_timesteps * self.replay.samples_per_insert / (self.batch_size * self.accumulate))

        def update_target(steps: tf.Tensor) -> None:
            move_weights(learned.critic, learned.target_critic, self.target_update_rate)
            networks.learning.assign(True)

        return GradientLearner(
            functools.partial(self.loss, learned),
            [
                make_objective("critic_loss", learned.critic.trainable_variables, self.critic_optimizer, steps),
                make_objective("actor_loss", learned.policy.trainable_variables, self.actor_optimizer, steps),
                make_objective("temperature_loss", [learned.log_alpha], self.temperature_optimizer, steps),
            ],
            strategy,
            updates_per_call=self.updates_per_call,
            after_update=update_target,
            seed=layout.seed,
            accumulate=self.accumulate,
        )

    def loss(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's part of a batch's losses (section 5) and metrics.

        Args:
          networks: policy, critics and temperature.
          sample: transitions `[2, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of the sampled actions.
        """
        if networks.normalizer is not None:
            networks.normalizer.update(_observations(sample)[0], leading=1)
        dtype = networks.log_alpha.dtype
        terms = (
            self._discrete(networks, sample) if networks.bounds is None else self._continuous(networks, sample, seed)
        )
        # Dividing by the global batch size makes the sum over the replicas the loss of the whole batch.
        scale = 1.0 / self.batch_size

        def mean(per_element: tf.Tensor) -> tf.Tensor:
            return scale * tf.reduce_sum(tf.cast(per_element, dtype))

        losses = {
            "critic_loss": mean(terms.critic_loss),
            "actor_loss": mean(terms.actor_loss),
            "temperature_loss": mean(terms.temperature_loss),
        }
        metrics = {
            "temperature": mean(tf.fill(tf.shape(terms.value), networks.alpha)),
            "entropy": mean(terms.entropy),
            "value": mean(terms.value),
        }
        return LossOutput(losses, metrics)

    def _continuous(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> SoftTerms:
        """Returns the losses of a Gaussian policy, with one sampled action at each observation."""
        record, bounds = sample.record, networks.bounds
        assert bounds is not None
        dtype = networks.log_alpha.dtype
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        policies, _ = networks.policy.unroll(Inputs(record.observation), (), record.first)
        normal = noise.standard_normal(seed, global_index(tf.shape(valid_t)[0]), (2, bounds.size), dtype)
        actions, log_probs = policies.sample_and_log_prob(tf.transpose(normal, (1, 0, 2)))
        x_t, x_tp1 = _observations(sample)
        target = networks.target_critic(x_tp1, actions[1])
        target_t = soft_target(
            r_t=self._reward(sample),
            discount_t=self.discount * record.discount[0],
            q1_tp1=target.q1,
            q2_tp1=target.q2,
            log_prob_tp1=log_probs[1],
            alpha=networks.alpha,
        )
        taken = networks.critic(x_t, bounds.from_environment(record.action[0], dtype))
        sampled = networks.critic(x_t, actions[0])
        entropy = float(-bounds.size if self.target_entropy is None else self.target_entropy)
        return SoftTerms(
            critic_loss=critic_loss(taken.q1, taken.q2, target_t, valid_t),
            actor_loss=actor_loss(sampled.q1, sampled.q2, log_probs[0], networks.alpha, valid_t),
            temperature_loss=temperature_loss(networks.alpha, log_probs[0], entropy, valid_t),
            entropy=-log_probs[0],
            value=tf.minimum(sampled.q1, sampled.q2),
        )

    def _discrete(self, networks: ActorCritic, sample: Sample) -> SoftTerms:
        """Returns the losses of a categorical policy, with expectations over all actions (Christodoulou 2019)."""
        record = sample.record
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        policies, _ = networks.policy.unroll(Inputs(record.observation), (), record.first)
        log_probs = policies.log_probs()
        x_t, x_tp1 = _observations(sample)
        target = networks.target_critic(x_tp1)
        target_t = discrete_soft_target(
            r_t=self._reward(sample),
            discount_t=self.discount * record.discount[0],
            q1_tp1=target.q1,
            q2_tp1=target.q2,
            log_probs_tp1=log_probs[1],
            alpha=networks.alpha,
        )
        values, action = networks.critic(x_t), record.action[0]
        q1_t, q2_t = action_value(values.q1, action), action_value(values.q2, action)
        log_prob_t = expected_log_prob(log_probs[0])
        largest = math.log(log_probs.shape[-1])
        entropy = _ENTROPY_SHARE * largest if self.target_entropy is None else self.target_entropy
        lower = tf.minimum(values.q1, values.q2)
        return SoftTerms(
            critic_loss=critic_loss(q1_t, q2_t, target_t, valid_t),
            actor_loss=discrete_actor_loss(values.q1, values.q2, log_probs[0], networks.alpha, valid_t),
            temperature_loss=temperature_loss(networks.alpha, log_prob_t, entropy, valid_t),
            entropy=-log_prob_t,
            value=tf.reduce_sum(tf.exp(log_probs[0]) * lower, axis=-1),
        )

    def _reward(self, sample: Sample) -> tf.Tensor:
        return learning_reward(sample.record.reward[0], self.reward_scale, self.reward_clip)


def _observations(sample: Sample) -> tuple[Nest, Nest]:
    """Returns the observations before and after the transitions of a sample."""
    x_t, x_tp1 = (tree.map_structure(lambda leaf, t=t: leaf[t], sample.record.observation) for t in (0, 1))
    return x_t, x_tp1


def _check_continuous(action: Any) -> None:
    """Raises `CallboardError` unless an environment's action is one array of floats with finite bounds."""
    if not isinstance(action, dm_specs.BoundedArray) or not np.issubdtype(action.dtype, np.floating):
        raise CallboardError(
            f"sac needs one discrete action or one action of floats with bounds, but the environment's action is "
            f"{specs.describe(action)}"
        )
    if not (np.isfinite(action.minimum).all() and np.isfinite(action.maximum).all()):
        raise CallboardError(
            f"sac scales its actions to the environment's bounds and needs finite ones, but the environment's "
            f"action, {specs.describe(action)}, has bounds that are infinite: wrap the environment to rescale it"
        )
    ActionBounds(action)
