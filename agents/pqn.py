"""PQN: Q(λ) on the newest data, without replay or target network (Gallici et al. 2025, https://arxiv.org/abs/2407.04811).

As in PPO, actors and learner alternate, and the learner makes several epochs over an iteration's data.  Layer
normalization takes the place of the target network.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ..data import Layout, Nest, Sample
from ..networks.factory import check_network, q_network
from ..networks.network import Inputs
from ..replay import SequenceQueue, check_stack, stacked_spec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .learning.gradient_step import LossOutput
from .learning.network_inputs import sequence_inputs
from .learning.on_policy import check_iterations, joined, newest_data_queue
from .learning.optimizers import make_optimizer
from .learning.q_learning import QNetworks
from .learning.reward_normalizer import make_reward_normalizer
from .losses.gae import gae
from .losses.q_learning import td_error, td_loss
from .losses.replicas import global_mean, valid_mean
from .losses.rewards import learning_reward
from .policies.action_checks import check_discrete
from .ppo_learner import PpoLearner
from .ppo_rollout import single_transitions
from .r2d2 import R2D2Policy
from .settings.ppo_settings import PqnSettings
from .watched import Gradient, Quantity, Returns


class PqnExtras(NamedTuple):
    """Values that the behavior policy adds to the record."""

    value: Any
    """`[B]`, value of the best action; it reveals weights that are not finite."""
    previous_reward: Any
    """See `ActingNetwork.previous_reward`."""


class PqnPolicy(R2D2Policy):
    """Acts as R2D2 does, and records less."""

    def extras(self, q: tf.Tensor, previous_reward: Any, slot: tf.Tensor) -> PqnExtras:
        return PqnExtras(self._actions.mean(tf.reduce_max(q, axis=-1)), previous_reward)


class PqnRollout(NamedTuple):
    """A replica's share of an iteration's data: B sequences of T transitions; T is 1 for a network without memory."""

    inputs: Inputs
    """The network's inputs, `[T, B, ...]`."""
    first: tf.Tensor
    """bool `[T, B]`."""
    action: Nest
    """Actions as in `QActions`, `[T, B]` or `[T, B, K]`."""
    valid: tf.Tensor
    """bool `[T, B]`, the valid transitions."""
    target: tf.Tensor
    """`[T, B]`, returns."""
    state: Nest
    """`[B, ...]`, the network's recurrent state at the first observation."""


@dataclasses.dataclass(frozen=True)
class Pqn(PqnSettings, Agent):
    """The PQN agent."""

    live = ("optimizer.learning_rate", "epsilon")
    watched = (Gradient(), Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete("pqn", layout.spec.action)
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        check_iterations(self, layout)

    def for_agents(self, count: int) -> "Pqn":
        return dataclasses.replace(self, batch_size=self.batch_size * count)

    def make_networks(self, layout: Layout) -> QNetworks:
        make_network = functools.partial(q_network, stacked_spec(layout.spec, self.frame_stack), **vars(self.network))
        return QNetworks(make_network, layout, self.epsilon, make_reward_normalizer(self), has_target=False)

    def make_policy(self, networks: QNetworks, mode: Mode) -> PqnPolicy:
        return PqnPolicy(networks, self, mode)

    def make_replay(self, layout: Layout) -> SequenceQueue:
        return newest_data_queue(self, layout, self.batch_size)

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> PpoLearner:
        return PpoLearner(
            self,
            layout,
            networks.online,
            functools.partial(self.loss, networks),
            functools.partial(self.best_values, networks),
            functools.partial(self.rollout, networks),
            make_optimizer(self.optimizer, None),
            strategy,
            numbers=functools.partial(self._follow_exploration, networks),
        )

    def _follow_exploration(self, networks: QNetworks, step: int) -> dict[str, Any]:
        """Lets actors fetch the newest exploration rate with the weights; the loss needs no numbers."""
        networks.epsilon.assign(self.epsilon)
        return {}

    def best_values(self, networks: QNetworks, sample: Sample) -> tf.Tensor:
        """Returns max_a Q(x, a) `[T + 1, B]` of a sample's observations, of the actions that are legal."""
        record = sample.record
        inputs, state = sequence_inputs(record, sample.state)
        q, _ = networks.online.unroll(inputs, state, record.first)
        return networks.actions.mean(tf.reduce_max(networks.masked(q, record.observation), axis=-1))

    def rollout(self, networks: QNetworks, samples: Sequence[Sample], values: Sequence[tf.Tensor]) -> PqnRollout:
        """Returns a replica's share of an iteration's data with its returns (section 4), and updates statistics.

            G_t = r_t + gamma ((1 - lambda) max_a Q(x_{t+1}, a) + lambda G_{t+1}),

        which is the target that `gae` computes of the values max_a Q(x, a).
        """
        sample = joined(samples)
        record = sample.record
        value = tf.concat(values, axis=1)
        valid_t = valid_transitions(record.first, record.last, record.discount)
        learned = sample if networks.returns is None else networks.returns.normalized(sample)
        target_t = gae(
            values=value,
            r_t=learning_reward(tf.convert_to_tensor(learned.record.reward), self.reward_scale, self.reward_clip),
            discount_t=self.discount * tf.cast(record.discount, value.dtype),
            valid_t=valid_t,
            lambda_=self.return_lambda,
        ).targets
        inputs, state = sequence_inputs(record, sample.state)
        inputs = tree.map_structure(lambda leaf: leaf[:-1], inputs)
        action = networks.actions.chosen(record.action)
        rollout = PqnRollout(inputs, record.first[:-1], action, valid_t, target_t, state)
        return rollout if networks.has_memory else single_transitions(rollout)

    def loss(self, networks: QNetworks, rollout: PqnRollout) -> LossOutput:
        """Returns a replica's share of a minibatch's loss, the mean squared error of Q(x_t, a_t), and metrics."""
        q, _ = networks.online.unroll(rollout.inputs, rollout.state, rollout.first, training=True)
        actions = networks.actions
        delta_t = td_error(q, rollout.action, rollout.target, rollout.valid)
        mean = global_mean(self.unroll_length * self.batch_size / self.minibatches, delta_t.dtype)
        loss = mean(td_loss(delta_t, composed=actions.composed)) + networks.online.regularization_loss()
        shown = valid_mean(rollout.valid, delta_t.dtype)
        best = tf.reduce_max(networks.masked(q, rollout.inputs.observation), axis=-1)
        metrics = {
            "td_error": shown(actions.mean(tf.abs(delta_t))),
            "value": shown(actions.mean(best)),
            "valid_fraction": mean(rollout.valid),
        }
        return LossOutput(loss, metrics)
