"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905)."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Nest, Sample, Timestep
from ..errors import CallboardError
from ..networks import stateless_random as noise
from ..networks.action_bounds import ActionBounds
from ..networks.actor_critic import ActorCritic, actor_critic_networks
from ..networks.distributions import SquashedGaussian
from ..networks.factory import check_network
from ..networks.network import Inputs
from ..networks.target_update import copy_weights, move_weights
from ..replay import TransitionReplay
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner
from .gradient_step import LossOutput
from .losses.replicas import global_index
from .losses.rewards import learning_reward
from .losses.soft_actor_critic import actor_loss, critic_loss, soft_target, temperature_loss
from .optimizers import make_objective
from .sac_settings import SacSettings


class SacNetworks(tf.Module):
    """Actor and critics, and whether learning has begun."""

    def __init__(self, actor_critic: ActorCritic):
        super().__init__()
        self.actor_critic = actor_critic
        self.learning = tf.Variable(False, trainable=False, name="learning")
        """bool, whether the learner has made its first step.  Until then actors take uniformly random actions."""


class HeldAction(NamedTuple):
    """Recurrent state of a policy that repeats its actions."""

    unit: Any
    """`[B, D]`, the previous action, in [-1, 1]."""
    left: Any
    """int32 `[B]`, number of timesteps for which it will be repeated."""


class SacPolicy(tf.Module):
    """Samples from the policy in training (uniformly until learning begins); takes its median in evaluation.

    Where actions are repeated, the recurrent state is a `HeldAction`.
    """

    def __init__(self, networks: SacNetworks, hold: int, mode: Mode):
        super().__init__()
        self.network = networks.actor_critic.policy
        self.learning = networks.learning
        self._bounds = networks.actor_critic.bounds
        self._hold = hold if mode == "train" else 1
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        if self._hold == 1:
            return ()
        unit = tf.zeros((batch_size, self._bounds.size), tf.keras.backend.floatx())
        return HeldAction(unit, tf.zeros((batch_size,), tf.int32))

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        policy, _ = self.network.step(Inputs(timestep.observation), (), timestep.first)
        if self._mode == "evaluate":
            return self._bounds.to_environment(policy.mode()), (), state
        if self._mode == "sample":
            return self._bounds.to_environment(_sampled(policy, slot, seed)), (), state
        unit = self._explore(policy, slot, seed)
        if self._hold > 1:
            renew = timestep.first | (state.left == 0)
            unit = tf.where(renew[:, tf.newaxis], unit, state.unit)
            state = HeldAction(unit, tf.where(renew, self._hold, state.left) - 1)
        return self._bounds.to_environment(unit), (), state

    def _explore(self, policy: SquashedGaussian, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        shape, dtype = (self._bounds.size,), policy.mean.dtype
        by_chance = 2 * noise.uniform(seed, slot, shape, dtype) - 1
        return tf.where(self.learning, _sampled(policy, slot, seed), by_chance)


def _sampled(policy: SquashedGaussian, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return policy.sample(noise.standard_normal(seed, slot, policy.mean.shape[-1:], policy.mean.dtype))


@dataclasses.dataclass(frozen=True)
class Sac(SacSettings, Agent):
    """The SAC agent."""

    live = tuple(f"{name}_optimizer.learning_rate" for name in ("actor", "critic", "temperature"))

    def check(self, layout: Layout) -> None:
        action = layout.spec.action
        if not isinstance(action, dm_specs.BoundedArray) or not np.issubdtype(action.dtype, np.floating):
            raise CallboardError(
                f"sac has a Gaussian policy and needs one action of floats with bounds, but the environment's action "
                f"is {specs.describe(action)}"
            )
        if not (np.isfinite(action.minimum).all() and np.isfinite(action.maximum).all()):
            raise CallboardError(
                f"sac scales its actions to the environment's bounds and needs finite ones, but the environment's "
                f"action, {specs.describe(action)}, has bounds that are infinite: wrap the environment to rescale it"
            )
        ActionBounds(action)
        torso = self.network.torso
        if ":" not in torso and torso.startswith("resnet"):
            raise CallboardError(
                f"sac does not train the statistics of batch normalization: set agent.network.torso to impala or "
                f"nature, not {torso}"
            )
        check_network(layout.spec, self.network)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> SacNetworks:
        return SacNetworks(actor_critic_networks(layout.spec, **vars(self.network), temperature=self.temperature))

    def make_policy(self, networks: SacNetworks, mode: Mode) -> SacPolicy:
        return SacPolicy(networks, self.hold, mode)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> TransitionReplay:
        return TransitionReplay(layout, self.replay, self.batch_size, self.updates_per_call * self.accumulate)

    def make_learner(self, networks: SacNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        learned = networks.actor_critic
        # The critic may have other weights than at first, those of another run.
        copy_weights(learned.critic, learned.target_critic)
        steps = int(layout.max_steps * self.replay.samples_per_insert / (self.batch_size * self.accumulate))

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
        record, bounds = sample.record, networks.bounds
        dtype = networks.log_alpha.dtype
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        policies, _ = networks.policy.unroll(Inputs(record.observation), (), record.first)
        normal = noise.standard_normal(seed, global_index(tf.shape(valid_t)[0]), (2, bounds.size), dtype)
        actions, log_probs = policies.sample_and_log_prob(tf.transpose(normal, (1, 0, 2)))
        log_prob_t, log_prob_tp1 = log_probs[0], log_probs[1]
        x_t = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_tp1 = tree.map_structure(lambda leaf: leaf[1], record.observation)
        target = networks.target_critic(x_tp1, actions[1])
        target_t = soft_target(
            r_t=learning_reward(record.reward[0], self.reward_scale, self.reward_clip),
            discount_t=self.discount * record.discount[0],
            q1_tp1=target.q1,
            q2_tp1=target.q2,
            log_prob_tp1=log_prob_tp1,
            alpha=networks.alpha,
        )
        taken = networks.critic(x_t, bounds.from_environment(record.action[0], dtype))
        sampled = networks.critic(x_t, actions[0])
        target_entropy = float(-bounds.size if self.target_entropy is None else self.target_entropy)
        # Dividing by the global batch size makes the sum over the replicas the loss of the whole batch.
        scale = 1.0 / self.batch_size

        def mean(per_element: tf.Tensor) -> tf.Tensor:
            return scale * tf.reduce_sum(tf.cast(per_element, dtype))

        losses = {
            "critic_loss": mean(critic_loss(taken.q1, taken.q2, target_t, valid_t)),
            "actor_loss": mean(actor_loss(sampled.q1, sampled.q2, log_prob_t, networks.alpha, valid_t)),
            "temperature_loss": mean(temperature_loss(networks.alpha, log_prob_t, target_entropy, valid_t)),
        }
        metrics = {
            "temperature": mean(tf.fill(tf.shape(valid_t), networks.alpha)),
            "entropy": -mean(log_prob_t),
            "value": mean(tf.minimum(sampled.q1, sampled.q2)),
        }
        return LossOutput(losses, metrics)
