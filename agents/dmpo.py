"""DMPO: maximum a posteriori policy optimization with a distributional critic.

Abdolmaleki et al. 2018 (https://arxiv.org/abs/1806.06920), in the form of Acme (Hoffman et al. 2020,
https://arxiv.org/abs/2006.00979).
"""

import dataclasses
import functools

import tensorflow as tf
import tree

from ..data import Layout, Nest, Sample, Timestep
from ..networks import stateless_random as noise
from ..networks.actor_critics.deterministic_actor_critic import (
    CategoricalCritic,
    DeterministicActorCritic,
    deterministic_actor_critic,
)
from ..networks.actor_critics.mpo_networks import GaussianHead, MpoDuals
from ..networks.distributions import DiagonalGaussian
from ..networks.gathers import gather
from ..networks.network import Inputs
from ..networks.random_streams import Stream
from ..replay import stacked_spec
from ..transitions import valid_transitions
from .agent import Mode
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.network_inputs import ActingNetwork
from .learning.optimizers import make_objective
from .learning.reward_normalizer import RewardNormalizer, make_reward_normalizer
from .learning.transition_agent import TransitionAgent
from .learning.value_range import SUPPORT_ENDS, ValueRange, check_support
from .losses.categorical import categorical_loss, mean_value, projected_target
from .losses.mpo import (
    decoupled_improvement,
    improved_weights,
    kl_penalty,
    multiplier_loss,
    out_of_bounds_cost,
)
from .losses.n_step import n_step_window, take_along_time
from .losses.replicas import Mean, global_index, global_mean, valid_mean
from .losses.rewards import learning_reward
from .losses.shapes import where_valid
from .policies.deterministic_policy import DeterministicNetworks, check_bounded
from .settings.d4pg_settings import DMPOSettings
from .watched import Gradient, Quantity, Returns


class DMPONetworks(DeterministicNetworks):
    """Policy, critic, their targets and the dual variables."""

    def __init__(
        self,
        actor_critic: DeterministicActorCritic,
        duals: MpoDuals,
        returns: RewardNormalizer | None,
        value_range: ValueRange,
    ):
        super().__init__(actor_critic, returns, value_range)
        self.duals = duals


class DMPOPolicy(tf.Module):
    """Samples from the policy in training (uniform actions until learning begins); takes its mean in evaluation."""

    def __init__(self, networks: DMPONetworks, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = networks.actor_critic.policy
        self._acting = ActingNetwork(self.network, frame_stack)
        self.learning = networks.learning
        self._bounds = networks.actor_critic.bounds
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self._acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        policy, state = self._acting.step(timestep, state)
        if self._mode == "evaluate":
            return self._bounds.to_environment(policy.mode()), (), state
        shape, dtype = (self._bounds.size,), policy.mean.dtype
        unit = policy.sample(noise.standard_normal(seed, Stream.ACTION, slot, shape, dtype))
        if self._mode == "train":
            unit = tf.where(self.learning, unit, 2 * noise.uniform(seed, Stream.UNIFORM_ACTION, slot, shape, dtype) - 1)
        return self._bounds.to_environment(unit), (), state


@dataclasses.dataclass(frozen=True)
class DMPO(DMPOSettings, TransitionAgent):
    """The DMPO agent."""

    live = tuple(f"{name}_optimizer.learning_rate" for name in ("actor", "critic", "dual"))
    watched = (
        *(Gradient(f"{name}_optimizer") for name in ("actor", "critic", "dual")),
        SUPPORT_ENDS,
        Quantity.VALUES,
        Returns("critic_optimizer"),
    )

    def check(self, layout: Layout) -> None:
        check_bounded("dmpo", self.limited(layout.spec), self.network, self.frame_stack)
        check_support(self)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> DMPONetworks:
        actor_critic = deterministic_actor_critic(
            self.limited(stacked_spec(layout.spec, self.frame_stack)),
            **vars(self.network),
            make_critic=functools.partial(CategoricalCritic, atoms=self.atoms),
            make_head=GaussianHead,
            outputs=DiagonalGaussian,
        )
        initial = (self.initial_temperature, self.initial_alpha_mean, self.initial_alpha_stddev)
        duals = MpoDuals(actor_critic.bounds.size, *initial)
        returns = make_reward_normalizer(self)
        return DMPONetworks(actor_critic, duals, returns, ValueRange(self, returns))

    def make_policy(self, networks: DMPONetworks, mode: Mode) -> DMPOPolicy:
        return DMPOPolicy(networks, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_learner(self, networks: DMPONetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
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
                make_objective("dual_loss", networks.duals.trainable_variables, self.dual_optimizer, steps),
            ],
            strategy,
            updates_per_call=self.updates_per_call,
            accumulate=self.accumulate,
            after_update=update_targets,
            seed=layout.seed,
            rewards=networks.returns,
        )

    def loss(self, networks: DMPONetworks, sample: Sample, seed: tf.Tensor) -> LossOutput:
        """Returns a replica's share of a batch's losses and metrics.

        The policy improves at the observations from which the critic's targets bootstrap, as in Acme, so that actions
        are sampled and evaluated once for both; and at the first observation of a window in which an episode
        terminates, since no target would bootstrap from the first observations of short episodes.

        Args:
          networks: policy, critic, their targets and the dual variables.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of the sampled actions.
        """
        record, learned, duals = sample.record, networks.actor_critic, networks.duals
        value_range = networks.value_range
        valid_t = valid_transitions(record.first, record.last, record.discount)
        reward_t = learning_reward(record.reward, self.reward_scale, self.reward_clip)
        steps = n_step_window(reward_t, self.discount * record.discount, valid_t)
        value_range.update(sample)
        x_0 = tree.map_structure(lambda leaf: leaf[0], record.observation)
        # After a termination there may be anything in place of the observation at its end.
        x_t = take_along_time(record.observation, tf.where(steps.discount != 0, steps.index, 0))
        if learned.normalizer is not None:
            learned.normalizer.update(x_0, leading=1)
        policy, _ = learned.policy.step(Inputs(x_t), (), record.first[0], training=True)
        target_policy, _ = learned.target_policy.step(Inputs(x_t), (), record.first[0])
        dtype = policy.mean.dtype
        values = value_range.support(self.atoms, dtype)

        number, size = self.action_samples, learned.bounds.size
        index = global_index(tf.shape(steps.valid)[0])
        normal = noise.standard_normal(seed, Stream.TARGET_ACTION, index, (number, size), dtype)
        actions = tf.stop_gradient(target_policy.sample(tf.transpose(normal, (1, 0, 2))))
        rows = tf.tile(tf.range(tf.shape(tree.flatten(x_t)[0])[0]), (number,))
        repeated = tree.map_structure(lambda leaf: gather(leaf, rows), x_t)
        within = tf.reshape(tf.clip_by_value(actions, -1.0, 1.0), (-1, size))
        logits = tf.reshape(learned.target_critic(repeated, within), (number, -1, self.atoms))
        probabilities = tf.reduce_mean(tf.nn.softmax(logits), axis=0)
        target = projected_target(steps.returns, steps.discount, probabilities, values)
        value_range.follow(target, values, steps.valid)
        taken = learned.critic(x_0, learned.bounds.from_environment(record.action[0], dtype))

        sampled_values = mean_value(logits, values)
        weights, temperature_loss = improved_weights(sampled_values, duals.temperature, self.epsilon)
        if self.action_penalization:
            penalized = improved_weights(out_of_bounds_cost(actions), duals.penalty_temperature, self.epsilon_penalty)
            weights, temperature_loss = weights + penalized.weights, temperature_loss + penalized.temperature_loss
        improved = decoupled_improvement(
            policy.mean, policy.log_std, target_policy.mean, target_policy.log_std, actions, weights
        )
        actor_loss = improved.policy_loss
        actor_loss += kl_penalty(improved.kl_mean, duals.alpha_mean)
        actor_loss += kl_penalty(improved.kl_stddev, duals.alpha_stddev)
        dual_loss = temperature_loss + multiplier_loss(improved.kl_mean, duals.alpha_mean, self.epsilon_mean)
        dual_loss += multiplier_loss(improved.kl_stddev, duals.alpha_stddev, self.epsilon_stddev)
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(steps.valid, dtype)
        losses = {
            "critic_loss": categorical_loss(taken, target, steps.valid),
            "actor_loss": where_valid(steps.valid, actor_loss),
            "dual_loss": where_valid(steps.valid, dual_loss),
        }
        metrics = {
            "critic_loss": shown(losses["critic_loss"]),
            "actor_loss": shown(actor_loss),
            "dual_loss": shown(dual_loss),
            "value": shown(tf.reduce_mean(sampled_values, axis=0)),
            "support_ends": shown(target[:, 0] + target[:, -1]),
            "temperature": Mean(duals.temperature, tf.ones((), dtype)),
            "entropy": shown(policy.entropy()),
            "kl_mean": shown(tf.reduce_mean(improved.kl_mean, axis=-1)),
            "kl_stddev": shown(tf.reduce_mean(improved.kl_stddev, axis=-1)),
        }
        return LossOutput({name: mean(value) for name, value in losses.items()}, metrics)
