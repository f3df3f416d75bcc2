"""R2D2: recurrent replay distributed DQN (Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX)."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..data import Layout, Nest, Record, Sample, Timestep
from ..networks.actions.legal_actions import mask_illegal
from ..networks.factory import check_network, q_network
from ..networks.network import Network
from ..replay import SequenceReplay, check_stack, stacked_spec, without_frames
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .learning.exploration_bonus import ExplorationBonus, check_bonus, is_spread, make_bonus, of_loss
from .learning.gradient_learner import GradientLearner
from .learning.gradient_step import LossOutput
from .learning.network_inputs import sequence_inputs
from .learning.q_learning import SMALLEST_PRIORITY, QActions, QNetworks, QPolicy, check_sequences, make_q_learner
from .learning.reward_normalizer import make_reward_normalizer, returns_discount, with_normalized_rewards
from .losses.prioritization import importance_weights, mixed_priority
from .losses.q_learning import sequence_double_q_targets, td_error, td_loss
from .losses.replicas import global_mean, largest_over_replicas, valid_mean
from .losses.rewards import learning_reward
from .losses.value_rescaling import EPSILON, inverse_rescale
from .policies.action_checks import check_discrete
from .settings.r2d2_settings import R2D2Settings
from .watched import Gradient, Quantity, Returns


class R2D2Extras(NamedTuple):
    """Values that the behavior policy adds to the record."""

    q: Any
    """`[B, A]`, or `[B, K, M]` for several choices: values for the initial priorities, the lowest where masked."""
    previous_reward: Any
    """See `ActingNetwork.previous_reward`."""
    return_deviation: Any = ()
    """See `QPolicy.return_deviation`."""
    bonus_weight: Any = ()
    """See `QPolicy.bonus_weight`."""


class R2D2Policy(QPolicy):
    """Acts on stacked frames, the previous action and the previous reward, with a recurrent core."""

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self._acting.step(timestep, state, self.bonus_weight(slot))
        legal = self._actions.legal(timestep.observation)
        q = mask_illegal(outputs, legal)
        action = self._actions.of_values(self.choose(q, slot, seed, legal))
        return action, self.extras(q, self._acting.previous_reward(timestep), slot), self._acting.carry(state, action)

    def extras(self, q: tf.Tensor, previous_reward: Any, slot: tf.Tensor) -> Any:
        """Returns the values to be recorded, for action values `[B, A]` or `[B, K, M]`."""
        return R2D2Extras(q, previous_reward, self.return_deviation(slot), self.bonus_weight(slot))


@dataclasses.dataclass(frozen=True)
class R2D2(R2D2Settings, Agent):
    """The R2D2 agent.

    A sequence holds `burn_in + trace_length` transitions of one environment and may cross the end of an episode: there
    the recurrent state is reset, and the transition to the next episode is not valid.  In the paper a sequence ends
    with its episode.
    """

    live = ("optimizer.learning_rate", "epsilon", "replay.importance_exponent")
    watched = (Gradient(), Quantity.VALUES, Returns())

    @property
    def _length(self) -> int:
        return self.burn_in + self.trace_length

    @property
    def _rescaling(self) -> float | None:
        return EPSILON if self.rescale_values else None

    def check(self, layout: Layout) -> None:
        check_discrete("r2d2", layout.spec.action)
        check_network(layout.spec, self.network, takes_bonus_weight=is_spread(self))
        check_stack(layout.spec, self.frame_stack)
        check_sequences(self, layout)
        check_bonus(self, layout)

    def make_networks(self, layout: Layout) -> QNetworks:
        spec = stacked_spec(layout.spec, self.frame_stack)
        make_network = functools.partial(q_network, spec, **vars(self.network), takes_bonus_weight=is_spread(self))
        return QNetworks(make_network, layout, self.epsilon, make_reward_normalizer(self))

    def make_policy(self, networks: QNetworks, mode: Mode) -> R2D2Policy:
        return R2D2Policy(networks, self, mode)

    def make_replay(self, layout: Layout) -> SequenceReplay:
        return SequenceReplay(
            layout,
            self.replay,
            self.batch_size,
            self.updates_per_call * self.accumulate,
            priority_exponent=self.replay.priority_exponent,
            first_priority=functools.partial(self.first_priority, QActions(layout.spec.action)),
            stack=self.frame_stack,
            length=self._length,
            period=self.period,
            keep_extras=True,
            stored_state=without_frames,
            returns_discount=returns_discount(self),
        )

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = self.replay.learner_steps(layout.max_timesteps / self.period, self.batch_size * self.accumulate)
        bonus = make_bonus(self, layout, has_values=False)
        return make_q_learner(
            networks,
            functools.partial(self.loss, networks, **of_loss(bonus)),
            self.optimizer,
            steps,
            strategy,
            self.target_update_period,
            self.updates_per_call,
            self.epsilon,
            self.accumulate,
            bonus=bonus,
        )

    def first_priority(self, actions: QActions, record: Record) -> np.ndarray:
        """Returns the initial priorities of sequences, from the values that the policy acted on.

        Args:
          actions: the environment's actions.
          record: arrays of W sequences, as in `replay.item_writer.Priority`; extras are `R2D2Extras`.

        Returns:
          `[W]`.
        """
        trace = self._trace(with_normalized_rewards(record, record.extras.return_deviation))
        delta_t, valid_t = self._td_errors(actions, trace, trace.extras.q, trace.extras.q)
        return self._priority(actions.mean(tf.abs(delta_t)), valid_t).numpy()

    def loss(self, networks: QNetworks, sample: Sample, bonus: ExplorationBonus | None = None) -> LossOutput:
        """Returns a replica's share of a batch's loss (section 2.3), with the new priorities of its sequences.

        Args:
          networks: the networks of `make_networks`.
          sample: sequences `[burn_in + trace_length + 1, B, ...]` with the state of an `ActingNetwork`, as
            `replay.SequenceFormat.read` returns them.
          bonus: the exploration bonus; None for none.
        """
        # The network takes previous rewards as they are.
        learned = sample if networks.returns is None else networks.returns.normalized(sample)
        trace, info = self._trace(learned.record), sample.info
        if networks.online.normalizer is not None:
            networks.online.normalizer.update(sample.record.observation)
        q_online = networks.masked(self._values(networks.online, sample, training=True), trace.observation)
        actions = networks.actions
        if bonus is not None:
            measured = bonus.measured(trace)
            trace = trace._replace(reward=bonus.added(trace.reward, measured, trace.extras.bonus_weight))
        delta_t, valid_t = self._td_errors(actions, trace, q_online, self._values(networks.target, sample))
        error_t = actions.mean(tf.abs(delta_t))
        weight = importance_weights(
            info.probability, info.items, self.replay.importance_exponent, largest_over_replicas
        )

        mean = global_mean(self.batch_size * self.trace_length, delta_t.dtype)
        # A mean over sequences of sums over time.  The regularization loss is per transition.
        loss = self.trace_length * (
            mean(td_loss(delta_t, weight, composed=actions.composed)) + networks.online.regularization_loss()
        )
        value_t = actions.mean(tf.reduce_max(q_online[:-1], axis=-1))
        shown = valid_mean(valid_t, delta_t.dtype)
        metrics = {
            "td_error": shown(error_t),
            "value": shown(inverse_rescale(value_t) if self.rescale_values else value_t),
            "importance_weight": shown(tf.broadcast_to(weight, tf.shape(error_t))),
            "valid_fraction": mean(valid_t),
        }
        output = LossOutput(loss, metrics, self._priority(error_t, valid_t))
        if bonus is None:
            return output
        return bonus.trained_too(output, measured, mean)

    def _values(self, network: Network, sample: Sample, training: bool = False) -> tf.Tensor:
        """Returns the values `[trace_length + 1, B, A]` after the burn-in, through which no gradients flow."""
        record, burn_in = sample.record, self.burn_in
        inputs, core = sequence_inputs(record, sample.state)
        if burn_in:
            before = tree.map_structure(lambda leaf: leaf[:burn_in], inputs)
            _, core = network.unroll(before, core, record.first[:burn_in])
            core = tree.map_structure(tf.stop_gradient, core)
        after = tree.map_structure(lambda leaf: leaf[burn_in:], inputs)
        q, _ = network.unroll(after, core, record.first[burn_in:], training)
        return q

    def _trace(self, record: Record) -> Record:
        """Returns the part that is learned from, with the rewards that are."""
        trace = tree.map_structure(lambda leaf: leaf[self.burn_in :], record)
        reward_t = learning_reward(tf.convert_to_tensor(trace.reward), self.reward_scale, self.reward_clip)
        return trace._replace(reward=reward_t)

    def _td_errors(self, actions: QActions, trace: Record, q_online: Any, q_target: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns TD errors `[trace_length, B]` or `[.., K]`, and the mask of valid transitions `[trace_length, B]`."""
        valid_t = valid_transitions(trace.first, trace.last, trace.discount)
        discount_t = self.discount * tf.cast(trace.discount, q_target.dtype)
        target_t = sequence_double_q_targets(
            q_online, q_target, trace.reward, discount_t, valid_t, self.n_step, self._rescaling
        )
        return td_error(q_online[:-1], actions.chosen(trace.action), target_t, valid_t), valid_t

    def _priority(self, error_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
        return mixed_priority(error_t, valid_t, self.priority_eta) + SMALLEST_PRIORITY
