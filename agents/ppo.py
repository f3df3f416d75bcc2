"""PPO: proximal policy optimization with clipped objectives (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..data import Layout, Sample
from ..errors import CallboardError
from ..networks.factory import check_network, policy_value_network
from ..networks.heads.popart import return_scale
from ..replay import SequenceQueue, check_stack, stacked_spec
from ..specs import EnvironmentSpec
from .agent import Agent, Mode
from .learning.decaying_rate import left_of_run
from .learning.exploration_bonus import ExplorationBonus, make_bonus, of_loss
from .learning.gradient_step import LossOutput
from .learning.on_policy import check_iterations, newest_data_queue
from .learning.optimizers import make_split_optimizer
from .losses.policy_gradient import entropy_loss, value_loss
from .losses.ppo import approximate_kl, clipped_surrogate_loss, clipped_value_loss, log_ratio
from .losses.replicas import global_mean, valid_mean
from .losses.rewards import learning_reward
from .policies.action_checks import check_discrete_or_bounded
from .policies.ppo_policy import PpoNetworks, PpoPolicy
from .ppo_learner import PpoLearner, iterations_of
from .ppo_rollout import Rollout, make_rollout, observation_values
from .settings.ppo_settings import PpoSettings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class Ppo(PpoSettings, Agent):
    """The PPO agent."""

    live = ("optimizer.learning_rate", "entropy_cost", "value_cost", "clip")
    watched = (Gradient(), Quantity.ENTROPY, Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded("ppo", layout.spec.action)
        torso = self.network.batch_normalized_torso
        if torso:
            raise CallboardError(
                f"ppo compares probabilities before and after an update, and batch normalization changes them too: "
                f"set agent.network.torso to impala or nature, not {torso}"
            )
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        check_iterations(self, layout)

    def for_agents(self, count: int) -> "Ppo":
        return dataclasses.replace(self, batch_size=self.batch_size * count)

    def make_networks(self, layout: Layout) -> PpoNetworks:
        """Creates the networks; a subclass may put any `Network` with any core into its `PpoNetworks`."""
        spec = stacked_spec(layout.spec, self.frame_stack)
        network = policy_value_network(spec, **vars(self.network), **self.deviation)
        return PpoNetworks(network, spec, self.normalize_rewards)

    def make_policy(self, networks: PpoNetworks, mode: Mode) -> PpoPolicy:
        if not isinstance(networks, PpoNetworks):
            raise CallboardError(
                f"{type(self).__name__}.make_networks gives {type(networks).__name__}: let it give "
                "PpoNetworks(network, layout.spec, self.normalize_rewards)"
            )
        return PpoPolicy(networks, mode, self.frame_stack)

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        return self.network.acting_spec(spec)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceQueue:
        return newest_data_queue(self, layout, self.batch_size)

    def make_learner(self, networks: PpoNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> PpoLearner:
        iterations = iterations_of(self, layout)
        bonus = make_bonus(self, layout, has_values=True)
        return PpoLearner(
            self,
            layout,
            networks.network,
            functools.partial(self.loss, networks, **of_loss(bonus)),
            functools.partial(observation_values, networks),
            functools.partial(self.rollout, networks, **of_loss(bonus)),
            make_split_optimizer(
                self.optimizer, None, getattr(networks.network, "value_variables", ()), self.value_learning_rate_scale
            ),
            strategy,
            numbers=lambda step: {"clip_range": self._clip_range(iterations, step)},
            target_kl=self.target_kl,
            bonus=bonus,
        )

    def _clip_range(self, iterations: int, step: int) -> Any:
        if self.clip_decay is False:
            return self.clip * 1.0
        left = left_of_run(self.clip_decay)
        return self.clip * (max(0.0, 1.0 - step / iterations) if left is None else left)

    def rollout(
        self,
        networks: PpoNetworks,
        samples: Sequence[Sample],
        values: Sequence[tf.Tensor],
        bonus: ExplorationBonus | None = None,
    ) -> Rollout:
        """Returns a replica's share of an iteration's data, see `make_rollout`."""
        return make_rollout(
            networks,
            samples,
            values,
            self.discount,
            self.gae_lambda,
            self.normalize_advantages,
            self._learning_reward,
            bonus,
        )

    def _learning_reward(self, reward: Any) -> Any:
        return learning_reward(tf.convert_to_tensor(reward), self.reward_scale, self.reward_clip)

    def loss(
        self,
        networks: PpoNetworks,
        rollout: Rollout,
        clip_range: tf.Tensor,
        bonus: ExplorationBonus | None = None,
    ) -> LossOutput:
        """Returns a replica's share of a minibatch's loss (equation (9)) and metrics.

        Args:
          networks: the networks to train.
          rollout: a replica's share of the minibatch.
          clip_range: ε of the probability ratio, a scalar.
          bonus: the exploration bonus; None for none.
        """
        network = networks.network
        outputs, _ = network.unroll(rollout.inputs, rollout.state, rollout.first, training=True)
        valid_t, dtype = rollout.valid, outputs.value.dtype
        log_prob_t, entropy_t = networks.actions.evaluate(outputs, rollout.inputs.observation, rollout.action)
        log_ratio_t = log_ratio(log_prob_t, rollout.log_prob, valid_t)
        mean = global_mean(self.unroll_length * self.batch_size / self.minibatches, dtype)
        policy_loss_t = clipped_surrogate_loss(log_ratio_t, rollout.advantage, valid_t, clip_range)
        value_scale = return_scale(network, rollout.inputs.observation)
        value, target = outputs.value / value_scale, rollout.target / value_scale
        if self.clip_value:
            value_loss_t = clipped_value_loss(value, rollout.value / value_scale, target, valid_t, clip_range)
        else:
            value_loss_t = value_loss(value, target, valid_t)
        loss = mean(policy_loss_t) + self.value_cost * mean(value_loss_t)
        loss += self.entropy_cost * mean(entropy_loss(entropy_t, valid_t))
        loss += network.regularization_loss()
        shown = valid_mean(valid_t, dtype)
        metrics = {
            "policy_loss": shown(policy_loss_t),
            "value_loss": shown(value_loss_t),
            "entropy": shown(entropy_t),
            "approximate_kl": shown(approximate_kl(log_ratio_t)),
            "clip_fraction": shown(tf.abs(tf.exp(log_ratio_t) - 1) > tf.cast(clip_range, dtype)),
            "value": shown(outputs.value),
            "valid_fraction": mean(valid_t),
        }
        output = LossOutput(loss, metrics)
        return output if bonus is None else bonus.trained_too(output, rollout.measured, mean)
