"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477)."""

import dataclasses
import functools

import tensorflow as tf
import tree

from ..data import Layout, Sample
from ..networks import stateless_random as noise
from ..networks.actor_critics.actor_critic import Critics
from ..networks.actor_critics.deterministic_actor_critic import DeterministicActorCritic, deterministic_actor_critic
from ..networks.network import Inputs
from ..networks.random_streams import Stream, stream_seed
from ..networks.stochastic_layers import sampling
from ..networks.target_update import move_weights
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .agent_names import agent_name
from .learning.actor_critic_checks import check_critics
from .learning.critic_values import critics_loss, mean_values, target_value
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.optimizers import make_objective
from .learning.periodic_reset import PeriodicReset
from .learning.reward_normalizer import make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .losses.deterministic_policy import bootstrapped_target, deterministic_policy_loss, smoothed_action
from .losses.n_step import n_step_window, take_along_time
from .losses.replicas import global_index, global_mean, valid_mean
from .losses.rewards import learning_reward
from .policies.deterministic_policy import DeterministicNetworks, DeterministicPolicy, check_bounded
from .settings.td3_settings import TD3Settings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class TD3(TD3Settings, TransitionAgent):
    """The TD3 agent."""

    live = ("actor_optimizer.learning_rate", "critic_optimizer.learning_rate")
    watched = (Gradient("actor_optimizer"), Gradient("critic_optimizer"), Quantity.VALUES, Returns("critic_optimizer"))

    def check(self, layout: Layout) -> None:
        spec = self.limited(layout.spec)
        check_bounded(agent_name(self), spec, self.network, self.frame_stack)
        check_critics(agent_name(self), spec.action, self.critics, self.network)
        self.check_steps("agent.reset_every", self.reset_every)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> DeterministicNetworks:
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        make_critic = functools.partial(Critics, critics=self.critics)
        learned = deterministic_actor_critic(spec, **vars(self.network), make_critic=make_critic)
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
            updates_per_call=self.updates_at_once(layout),
            accumulate=self.accumulate,
            after_update=update_targets,
            seed=layout.seed,
            rewards=networks.returns,
            reset=PeriodicReset.of(self, networks, strategy, layout),
        )

    def loss(self, networks: DeterministicActorCritic, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's share of a batch's losses (algorithm 1) and metrics.

        Args:
          networks: policy, critics and their targets.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of the noise of the target policy's actions.
        """
        record, bounds = sample.record, networks.bounds
        steps = n_step_window(
            learning_reward(record.reward, self.reward_scale, self.reward_clip),
            self.discount * record.discount,
            valid_transitions(record.first, record.last, record.discount),
        )
        valid_t, index = steps.valid, global_index(tf.shape(steps.valid)[0])
        x_t = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_n = take_along_time(record.observation, steps.index)
        if networks.normalizer is not None:
            networks.normalizer.update(x_t, leading=1)
        unit_t, _ = networks.policy.step(Inputs(x_t), (), record.first[0], training=True)
        unit_n, _ = networks.target_policy.step(Inputs(x_n), (), record.first[0])
        dtype = unit_t.dtype
        normal = noise.standard_normal(seed, Stream.TARGET_ACTION, index, (bounds.size,), dtype)
        smoothed = smoothed_action(unit_n, self.target_noise * normal, self.target_noise_clip)
        taken_t = bounds.from_environment(record.action[0], dtype)
        inputs = [(networks.target_critic, x_n, smoothed), (networks.critic, x_t, taken_t)]
        inputs.append((networks.critic, x_t, unit_t))
        outputs = []
        for number, (critic, x, unit) in enumerate(inputs):
            # Each pass has dropout of its own, if there is any.
            with sampling(stream_seed(seed, Stream.NETWORK_PASS, number) if self.critics.dropout else None, index):
                outputs.append(critic(x, unit))
        later, taken, own = outputs
        target_t = bootstrapped_target(steps.returns, steps.discount, target_value(self.critics, later, seed))
        values = mean_values(self.critics, own)
        value_t = tf.reduce_mean(values, axis=0) if self.critics.averaged else values[0]
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(valid_t, dtype)
        losses = {
            "critic_loss": critics_loss(self.critics, taken, target_t, valid_t),
            "actor_loss": self.policy_loss(value_t, unit_t, taken_t, valid_t),
        }
        metrics = {name: shown(value) for name, value in {**losses, "value": value_t}.items()}
        return LossOutput({name: mean(value) for name, value in losses.items()}, metrics)

    def policy_loss(self, value_t: tf.Tensor, unit_t: tf.Tensor, taken_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
        """Returns the loss of the policy `[B]`.

        Args:
          value_t: `[B]`, the critics' value of the policy's actions.
          unit_t: `[B, D]`, the policy's actions.
          taken_t: `[B, D]`, the actions in replay.
          valid_t: bool `[B]`.
        """
        return deterministic_policy_loss(value_t, valid_t)
