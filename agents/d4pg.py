"""D4PG: distributed distributional deterministic policy gradients (Barth-Maron et al. 2018, arXiv:1804.08617)."""

import dataclasses
import functools

import tensorflow as tf
import tree

from ..data import Layout, Sample
from ..networks.actor_critics.deterministic_actor_critic import CategoricalCritic, deterministic_actor_critic
from ..networks.network import Inputs
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.optimizers import make_objective
from .learning.reward_normalizer import make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .learning.value_range import SUPPORT_ENDS, ValueRange, check_support
from .losses.categorical import categorical_loss, mean_value, projected_target
from .losses.deterministic_policy import deterministic_policy_loss
from .losses.n_step import n_step_window, take_along_time
from .losses.replicas import global_mean, valid_mean
from .losses.rewards import learning_reward
from .policies.deterministic_policy import DeterministicNetworks, DeterministicPolicy, check_bounded
from .settings.d4pg_settings import D4PGSettings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class D4PG(D4PGSettings, TransitionAgent):
    """The D4PG agent."""

    live = ("actor_optimizer.learning_rate", "critic_optimizer.learning_rate")
    watched = (
        Gradient("actor_optimizer"),
        Gradient("critic_optimizer"),
        SUPPORT_ENDS,
        Quantity.VALUES,
        Returns("critic_optimizer"),
    )

    def check(self, layout: Layout) -> None:
        check_bounded("d4pg", self.limited(layout.spec), self.network, self.frame_stack)
        check_support(self)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> DeterministicNetworks:
        make_critic = functools.partial(CategoricalCritic, atoms=self.atoms)
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        learned = deterministic_actor_critic(spec, **vars(self.network), make_critic=make_critic)
        returns = make_reward_normalizer(self)
        return DeterministicNetworks(learned, returns, ValueRange(self, returns))

    def make_policy(self, networks: DeterministicNetworks, mode: Mode) -> DeterministicPolicy:
        return DeterministicPolicy(networks, self.exploration_noise, mode, self.frame_stack)

    def make_learner(
        self, networks: DeterministicNetworks, strategy: tf.distribute.Strategy, layout: Layout
    ) -> GradientLearner:
        learned = networks.actor_critic
        learned.begin_targets()
        steps = self.learner_steps(layout)

        def update_targets(steps: tf.Tensor) -> None:
            learned.copy_to_targets_every(self.target_update_period, steps)
            networks.value_range.settle(learned.critic, learned.target_critic)
            networks.learning.assign(True)

        return GradientLearner(
            functools.partial(self.loss, networks),
            [
                make_objective("critic_loss", learned.critic.trainable_variables, self.critic_optimizer, steps),
                make_objective("actor_loss", learned.policy.trainable_variables, self.actor_optimizer, steps),
            ],
            strategy,
            updates_per_call=self.updates_per_call,
            accumulate=self.accumulate,
            after_update=update_targets,
            rewards=networks.returns,
        )

    def loss(self, networks: DeterministicNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's share of a batch's losses (algorithm 1) and metrics.

        Args:
          networks: policy, critic, their targets and the range of values.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
        """
        record, learned, value_range = sample.record, networks.actor_critic, networks.value_range
        valid_t = valid_transitions(record.first, record.last, record.discount)
        reward_t = learning_reward(record.reward, self.reward_scale, self.reward_clip)
        steps = n_step_window(reward_t, self.discount * record.discount, valid_t)
        value_range.update(sample)
        x_0 = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_n = take_along_time(record.observation, steps.index)
        if learned.normalizer is not None:
            learned.normalizer.update(x_0, leading=1)
        unit_0, _ = learned.policy.step(Inputs(x_0), (), record.first[0], training=True)
        unit_n, _ = learned.target_policy.step(Inputs(x_n), (), record.first[0])
        dtype = unit_0.dtype
        values = value_range.support(self.atoms, dtype)
        target = projected_target(
            r_t=steps.returns,
            discount_t=steps.discount,
            probabilities=tf.nn.softmax(learned.target_critic(x_n, unit_n)),
            values=values,
        )
        value_range.follow(target, values, steps.valid)
        taken = learned.critic(x_0, learned.bounds.from_environment(record.action[0], dtype))
        value_0 = mean_value(learned.critic(x_0, unit_0), values)
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(steps.valid, dtype)
        losses = {
            "critic_loss": categorical_loss(taken, target, steps.valid),
            "actor_loss": deterministic_policy_loss(value_0, steps.valid),
        }
        # Where the support is too narrow, much of the targets is at its ends.
        further = {"value": value_0, "support_ends": target[:, 0] + target[:, -1]}
        metrics = {name: shown(value) for name, value in {**losses, **further}.items()}
        return LossOutput({name: mean(value) for name, value in losses.items()}, metrics)
