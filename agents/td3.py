"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477)."""

import dataclasses
import functools

import tensorflow as tf
import tree

from ..data import Layout, Sample
from ..networks import stateless_random as noise
from ..networks.actor_critics.deterministic_actor_critic import DeterministicActorCritic, deterministic_actor_critic
from ..networks.network import Inputs
from ..networks.random_streams import Stream
from ..networks.target_update import move_weights
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .agent_names import agent_name
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.optimizers import make_objective
from .learning.reward_normalizer import make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .losses.deterministic_policy import clipped_double_q_target, deterministic_policy_loss, smoothed_action
from .losses.replicas import global_index, global_mean, valid_mean
from .losses.rewards import learning_reward
from .losses.soft_actor_critic import critic_loss
from .policies.deterministic_policy import DeterministicNetworks, DeterministicPolicy, check_bounded
from .settings.td3_settings import TD3Settings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class TD3(TD3Settings, TransitionAgent):
    """The TD3 agent."""

    live = ("actor_optimizer.learning_rate", "critic_optimizer.learning_rate")
    watched = (Gradient("actor_optimizer"), Gradient("critic_optimizer"), Quantity.VALUES, Returns("critic_optimizer"))

    def check(self, layout: Layout) -> None:
        check_bounded(agent_name(self), self.limited(layout.spec), self.network, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> DeterministicNetworks:
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        learned = deterministic_actor_critic(spec, **vars(self.network))
        return DeterministicNetworks(learned, make_reward_normalizer(self))

    def make_policy(self, networks: DeterministicNetworks, mode: Mode) -> DeterministicPolicy:
        return DeterministicPolicy(networks, self.exploration_noise, mode, self.frame_stack)

    def make_learner(
        self, networks: DeterministicNetworks, strategy: tf.distribute.Strategy, layout: Layout
    ) -> GradientLearner:
        learned = networks.actor_critic
        learned.begin_targets()
        steps = self.learner_steps(layout)
        policy_variables = learned.policy.trainable_variables
        actor = make_objective("actor_loss", policy_variables, self.actor_optimizer, max(1, steps // self.policy_delay))

        def update_targets(steps: tf.Tensor) -> None:
            # The first step is one of the policy, too.
            rate = tf.where((steps - 1) % self.policy_delay == 0, tf.constant(self.target_update_rate, tf.float64), 0.0)
            move_weights(learned.critic, learned.target_critic, rate)
            move_weights(learned.policy, learned.target_policy, rate)
            networks.learning.assign(True)

        return GradientLearner(
            functools.partial(self.loss, learned),
            [
                make_objective("critic_loss", learned.critic.trainable_variables, self.critic_optimizer, steps),
                actor._replace(period=self.policy_delay),
            ],
            strategy,
            updates_per_call=self.updates_per_call,
            accumulate=self.accumulate,
            after_update=update_targets,
            seed=layout.seed,
            rewards=networks.returns,
        )

    def loss(self, networks: DeterministicActorCritic, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's share of a batch's losses (algorithm 1) and metrics.

        Args:
          networks: policy, critics and their targets.
          sample: transitions `[2, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of the noise of the target policy's actions.
        """
        record, bounds = sample.record, networks.bounds
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        x_t = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_tp1 = tree.map_structure(lambda leaf: leaf[1], record.observation)
        if networks.normalizer is not None:
            networks.normalizer.update(x_t, leading=1)
        unit_t, _ = networks.policy.step(Inputs(x_t), (), record.first[0], training=True)
        unit_tp1, _ = networks.target_policy.step(Inputs(x_tp1), (), record.first[1])
        dtype = unit_t.dtype
        normal = noise.standard_normal(
            seed, Stream.TARGET_ACTION, global_index(tf.shape(valid_t)[0]), (bounds.size,), dtype
        )
        smoothed = smoothed_action(unit_tp1, self.target_noise * normal, self.target_noise_clip)
        target = networks.target_critic(x_tp1, smoothed)
        target_t = clipped_double_q_target(
            r_t=learning_reward(record.reward[0], self.reward_scale, self.reward_clip),
            discount_t=self.discount * record.discount[0],
            q1_tp1=target.q1,
            q2_tp1=target.q2,
        )
        taken_t = bounds.from_environment(record.action[0], dtype)
        taken = networks.critic(x_t, taken_t)
        value_t = networks.critic(x_t, unit_t).q1
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(valid_t, dtype)
        losses = {
            "critic_loss": critic_loss(taken.q1, taken.q2, target_t, valid_t),
            "actor_loss": self.policy_loss(value_t, unit_t, taken_t, valid_t),
        }
        metrics = {name: shown(value) for name, value in {**losses, "value": value_t}.items()}
        return LossOutput({name: mean(value) for name, value in losses.items()}, metrics)

    def policy_loss(self, value_t: tf.Tensor, unit_t: tf.Tensor, taken_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
        """Returns the loss of the policy `[B]`.

        Args:
          value_t: `[B]`, the first critic's value of the policy's actions.
          unit_t: `[B, D]`, the policy's actions.
          taken_t: `[B, D]`, the actions in replay.
          valid_t: bool `[B]`.
        """
        return deterministic_policy_loss(value_t, valid_t)
