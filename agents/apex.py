"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018, https://arxiv.org/abs/1803.00933)."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ..data import Layout, Nest, Record, Sample, Timestep
from ..errors import CallboardError
from ..networks.actions.legal_actions import mask_illegal
from ..networks.factory import check_network, q_network
from ..networks.network import Inputs, Network
from ..networks.random_streams import Stream, stream_seed
from ..networks.stochastic_layers import sampling
from ..replay import TransitionReplay, check_stack, stacked_spec
from ..specs import describe
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .learning.exploration_bonus import ExplorationBonus, check_bonus, is_spread, make_bonus, of_loss
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.q_learning import SMALLEST_PRIORITY, QActions, QNetworks, QPolicy, make_q_learner
from .learning.reward_normalizer import make_reward_normalizer, returns_discount, with_normalized_rewards
from .learning.updates_at_once import updates_at_once
from .learning.value_distributions import ValueDistribution
from .learning.value_range import SUPPORT_ENDS, ValueRange, check_support
from .losses.exploration_bonus import row_weights
from .losses.munchausen import expected_value, munchausen_bonus, munchausen_steps, soft_value
from .losses.n_step import n_step_window, take_along_time
from .losses.prioritization import importance_weights
from .losses.q_learning import action_value, bootstrapped, double_q_target, td_error, td_loss
from .losses.replicas import global_index, global_mean, largest_over_replicas, valid_mean
from .losses.rewards import learning_reward
from .policies.action_checks import check_discrete
from .settings.apex_settings import ApexSettings
from .watched import Gradient, Quantity, Returns


class ApexExtras(NamedTuple):
    """Values that the behavior policy records to compute initial priorities."""

    value: Any
    """`[B]`, Q(x, a) of the action taken; `[B, K]`, those of its choices, if it has several."""
    best: Any
    """`[B]`, the largest Q(x, .), or the mean of the largest of each choice; with `munchausen` the soft value."""
    return_deviation: Any = ()
    """See `QPolicy.return_deviation`."""


class ApexPolicy(QPolicy):
    """Acts on stacked frames."""

    def __init__(self, networks: QNetworks, agent: "Apex", mode: Mode):
        super().__init__(networks, agent, mode)
        self._samples = agent.samples and mode == "train"
        self._greedy = agent.noisy and mode == "train"
        self.value_range = networks.value_range
        self._values = agent.values_of(networks)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        with sampling(seed if self._samples else None, slot):
            outputs, state = self._acting.step(timestep, state, self.bonus_weight(slot))
        actions = self._actions
        legal = actions.legal(timestep.observation)
        q = mask_illegal(self._values.mean(outputs), legal)
        chosen = self.choose(q, slot, seed, legal)
        extras = ApexExtras(
            value=action_value(q, chosen),
            best=self._agent.best_value(q, actions),
            return_deviation=self.return_deviation(slot),
        )
        return actions.of_values(chosen), extras, state


@dataclasses.dataclass(frozen=True)
class Apex(ApexSettings, Agent):
    """The Ape-X DQN agent."""

    live = ("optimizer.learning_rate", "epsilon", "replay.importance_exponent")
    watched = (Gradient(), SUPPORT_ENDS, Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete("apex", layout.spec.action)
        if self.distribution != "none" and not isinstance(layout.spec.action, dm_specs.DiscreteArray):
            raise CallboardError(
                "apex learns distributions of values for one choice, but the environment's action is "
                f"{describe(layout.spec.action)}: set agent.distribution to none"
            )
        if self.munchausen and not isinstance(layout.spec.action, dm_specs.DiscreteArray):
            raise CallboardError(
                "munchausen has a policy over one discrete choice, but the environment's action is "
                f"{describe(layout.spec.action)}: set agent.munchausen to 0"
            )
        check_network(layout.spec, self.network, takes_bonus_weight=is_spread(self))
        check_stack(layout.spec, self.frame_stack)
        if self.distribution != "none":
            check_support(self)
        check_bonus(self, layout)
        if is_spread(self) and self.batch_size == 1:
            raise CallboardError(
                "with agent.bonus.spread each row of a batch has another weight: set agent.batch_size to at least 2"
            )
        self.make_replay(layout).check()

    @property
    def values(self) -> ValueDistribution:
        """How the value of an action is distributed."""
        return ValueDistribution(self.distribution, self.atoms, self.value_min, self.value_max, self.huber)

    def values_of(self, networks: QNetworks) -> ValueDistribution:
        """Returns the same, with the range of the values of networks."""
        return dataclasses.replace(self.values, range=networks.value_range)

    @property
    def samples(self) -> bool:
        """Whether the network has layers that sample, in acting and in learning."""
        return self.noisy or self.distribution == "implicit"

    def updates_at_once(self, layout: Layout) -> int:
        """Returns the number of learner steps per call, in a run of this layout."""
        return self.updates_per_call or updates_at_once(
            layout, self.replay, self.batch_size, self.accumulate, self.frame_stack, timesteps=2
        )

    def make_networks(self, layout: Layout) -> QNetworks:
        spec, noisy_sigma = stacked_spec(layout.spec, self.frame_stack), self.noisy_sigma if self.noisy else None
        make_network = functools.partial(
            q_network,
            spec,
            **vars(self.network),
            **self.values.outputs,
            noisy_sigma=noisy_sigma,
            takes_bonus_weight=is_spread(self),
        )
        returns = make_reward_normalizer(self)
        value_range = ValueRange(self, returns) if self.distribution == "categorical" else None
        return QNetworks(make_network, layout, self.epsilon, returns, value_range)

    def make_policy(self, networks: QNetworks, mode: Mode) -> ApexPolicy:
        return ApexPolicy(networks, self, mode)

    def make_replay(self, layout: Layout) -> TransitionReplay:
        return TransitionReplay(
            layout,
            self.replay,
            self.batch_size,
            self.updates_at_once(layout) * self.accumulate,
            priority_exponent=self.replay.priority_exponent,
            first_priority=self.first_priority,
            stack=self.frame_stack,
            n_step=self.n_step,
            returns_discount=returns_discount(self),
        )

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = self.replay.learner_steps(layout.max_timesteps, self.batch_size * self.accumulate)
        bonus = make_bonus(self, layout, has_values=False)
        return make_q_learner(
            networks,
            functools.partial(self.loss, networks, **of_loss(bonus)),
            self.optimizer,
            steps,
            strategy,
            self.target_update_period,
            self.updates_at_once(layout),
            self.epsilon,
            self.accumulate,
            seed=layout.seed if self.samples else None,
            rewards=networks.returns,
            bonus=bonus,
        )

    def first_priority(self, record: Record) -> np.ndarray:
        """Returns the initial priorities of windows: their absolute TD errors (section 3) under the acting policy.

        Args:
          record: arrays of W windows, as in `replay.item_writer.Priority`; extras are `ApexExtras`.

        Returns:
          `[W]`.
        """
        record = with_normalized_rewards(record, record.extras.return_deviation)
        valid_t = ~record.last[:-1]  # Windows mark what an n-step return does not reach as `last`.
        reward_t = self._clipped(record.reward)
        target, discount = np.zeros(reward_t.shape[1]), np.ones(reward_t.shape[1])
        for t in range(self.n_step):
            target += np.where(valid_t[t], discount * reward_t[t], 0.0)
            discount *= np.where(valid_t[t], self.discount * record.discount[t], 1.0)
        length = valid_t.sum(axis=0)
        best, value = record.extras.best, record.extras.value[0]
        target += discount * best[length, np.arange(len(length))]
        if self.munchausen:
            target += self.munchausen * np.clip(value - best[0], -self.munchausen_clip, 0.0)
        error = np.abs(target - value) if value.ndim == 1 else np.abs(target[:, np.newaxis] - value).mean(axis=-1)
        return error + SMALLEST_PRIORITY

    def loss(
        self,
        networks: QNetworks,
        sample: Sample,
        seed: tf.Tensor | None = None,
        bonus: ExplorationBonus | None = None,
    ) -> LossOutput:
        """Returns a replica's share of a batch's loss (section 3.1), with the new priorities of its windows.

        Args:
          networks: the networks of `make_networks`.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
          seed: int64 `[2]`, seed of noise and of sampled fractions; None for none.
          bonus: the exploration bonus; None for none.
        """
        record, info = sample.record, sample.info
        valid_t = valid_transitions(record.first, record.last, record.discount)
        reward_t = self._clipped(record.reward)
        index = global_index(tf.shape(record.first)[1])
        bonus_weight: Any = ()
        if bonus is not None:
            measured = bonus.measured(record)
            if is_spread(self):
                # Q-learning learns the values for any weight from any transition.
                bonus_weight = tf.gather(row_weights(self.batch_size, self.bonus.weight), index)
            reward_t = bonus.added(reward_t, measured, bonus_weight)
        steps = n_step_window(reward_t, self.discount * record.discount, valid_t)
        if networks.value_range is not None:
            networks.value_range.update(sample)
        x_0 = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_n = take_along_time(record.observation, steps.index)
        if networks.online.normalizer is not None:
            networks.online.normalizer.update(x_0, leading=1)

        def values(network: Network, observation: Nest, number: int, training: bool = False) -> Any:
            different = None if seed is None else stream_seed(seed, Stream.NETWORK_PASS, number)
            with sampling(different, index, same_noise=True):
                inputs = Inputs(observation, bonus_weight=bonus_weight)
                return network.step(inputs, (), record.first[0], training)[0]

        distribution = self.values_of(networks)
        outputs_0 = values(networks.online, x_0, 0, training=True)
        q_0 = networks.masked(distribution.mean(outputs_0), x_0)
        # Keras discards the losses that layers add when they are called again.
        regularization = networks.online.regularization_loss()
        actions = networks.actions
        chosen = actions.chosen(tree.map_structure(lambda leaf: leaf[0], record.action))
        target_outputs = values(networks.target, x_n, 2)
        target_n = distribution.mean(target_outputs)
        if self.munchausen:
            target_0 = networks.masked(distribution.mean(values(networks.target, x_0, 3)), x_0)
            log_policy = munchausen_bonus(
                target_0, chosen, self.munchausen, self.munchausen_temperature, self.munchausen_clip
            )
            masked_n = networks.masked(target_n, x_n)
            steps, policy = munchausen_steps(steps, log_policy, masked_n, self.munchausen_temperature)
            target = bootstrapped(steps, expected_value(policy, masked_n))
        else:
            q_n = networks.masked(distribution.mean(values(networks.online, x_n, 1)), x_n)
            target = double_q_target(steps, q_n, target_n)
            policy = tf.one_hot(tf.argmax(q_n, axis=-1), q_n.shape[-1], dtype=q_n.dtype)
        delta = td_error(q_0, chosen, target, steps.valid)
        error = actions.mean(tf.abs(delta))
        weight = importance_weights(
            info.probability, info.items, self.replay.importance_exponent, largest_over_replicas
        )
        mean = global_mean(self.batch_size, delta.dtype)
        further: dict[str, tf.Tensor] = {}
        if distribution.kind == "none":
            loss_t = td_loss(delta, weight, self.huber, actions.composed)
        else:
            loss_t, further = distribution.loss(outputs_0, chosen, steps, target_outputs, policy)
            loss_t *= tf.cast(weight, loss_t.dtype)
        loss = mean(loss_t) + regularization
        shown = valid_mean(steps.valid, delta.dtype)
        metrics = {
            "td_error": shown(error),
            "value": shown(actions.mean(tf.reduce_max(q_0, axis=-1))),
            "importance_weight": shown(weight),
            **{name: shown(each) for name, each in further.items()},
        }
        output = LossOutput(loss, metrics, priorities=error + SMALLEST_PRIORITY)
        if bonus is None:
            return output
        return bonus.trained_too(output, measured, global_mean(self.batch_size * self.n_step, delta.dtype))

    def best_value(self, q: Any, actions: QActions) -> tf.Tensor:
        """Returns what targets bootstrap from `[B]`, given the values of all actions, as in `QActions`."""
        if self.munchausen:
            return soft_value(q, self.munchausen_temperature)
        return actions.mean(tf.reduce_max(q, axis=-1))

    def _clipped(self, reward: Any) -> Any:
        return learning_reward(reward, self.reward_scale, self.reward_clip)
