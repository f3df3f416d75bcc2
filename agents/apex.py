"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018, https://arxiv.org/abs/1803.00933)."""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..data import Layout, Nest, Record, Sample, Timestep
from ..networks.factory import check_torso, q_network
from ..networks.network import Inputs, Network
from ..replay import ReplayLimits, TransitionReplay, check_stack, initial_frames, push_frames, stacked_spec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner, make_optimizer
from .gradient_step import LossOutput
from .losses.n_step import n_step_window, take_along_time
from .losses.prioritization import importance_weights
from .losses.q_learning import action_value, double_q_target, td_error, td_loss
from .losses.replicas import largest_over_replicas
from .q_learning import SMALLEST_PRIORITY, QNetworks, QPolicy, check_action, make_q_learner
from .ranges import check_ranges


class ApexExtras(NamedTuple):
    """What the behavior policy records for the initial priorities."""

    value: Any
    """`[B]`, Q(x, a) of the action taken."""
    best: Any
    """`[B]`, the largest Q(x, .)."""


class ApexPolicy(QPolicy):
    """Acts on stacked frames, which are its recurrent state."""

    def initial_state(self, batch_size: int) -> Nest:
        return initial_frames(self._spec, self._agent.frame_stack, batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        observation, state = push_frames(timestep, state, self._agent.frame_stack)
        q, _ = self.network.step(Inputs(observation), (), timestep.first)
        action = self.choose(q, slot, seed)
        return action, ApexExtras(value=action_value(q, action), best=tf.reduce_max(q, axis=-1)), state


@dataclasses.dataclass(frozen=True)
class Apex(Agent):
    """The Ape-X DQN agent.  Defaults are for one machine; the recipe `apex-atari` has the paper's for Atari.

    With the paper's settings, which are for 360 actors and billions of frames, nothing is learned within a million
    steps.  Here batches are smaller, each transition is learned from more often, the optimizer is Adam with a larger
    learning rate, and the target network is updated more often.  Returns, priorities, discount and exploration are
    the paper's.  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      n_step: transitions in a window (n).
      batch_size: windows in a learner step, over all replicas.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      replay_size: maximum number of windows in replay, over all shards; the oldest are evicted.
      min_replay_size: windows in replay before learning begins.
      samples_per_insert: average number of times that a window is learned from; in the paper actors and learner run
        freely.
      error_buffer: samples by which learning may run ahead of or behind samples_per_insert; None for a suitable number.
      priority_exponent: α, windows are sampled in proportion to priority^α; 0 samples uniformly.
      importance_exponent: β, how far importance weights correct the bias of prioritized sampling.
      discount: γ.
      epsilon: exploration rate of the first environment, constant over the run.  A single environment explores at this
        rate and needs a lower one.
      epsilon_alpha: the last environment explores at rate epsilon^(1 + epsilon_alpha), the others in between.
      evaluation_epsilon: rate of random actions in evaluation; 0.001 or 0.01 is usual on Atari, where a policy without
        random actions may repeat an action without effect until the time limit.
      target_update_period: learner steps between updates of the target network.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip] for learning; None disables clipping.  The paper
        clips Atari rewards to [-1, 1].
      huber: absolute TD error beyond which the loss is linear; None for a squared loss everywhere, as in the paper.
      optimizer: rmsprop (not centered, unlike the paper's) or adam.
      learning_rate: initial learning rate.
      learning_rate_decay: whether the learning rate decays linearly to 0 over the run's environment steps.
      rmsprop_decay: decay of the moving average of squared gradients, which starts at 1, as in TensorFlow 1.
      optimizer_epsilon: added to the denominator of the update by Adam, and under its square root by RMSProp.
      max_gradient_norm: global norm to which gradients are clipped; the loss is a mean over the batch.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      torso: auto, mlp, nature, impala, or package.module:factory, which takes the spec and returns a Keras model.
      hidden_sizes: layers of the MLP for vector observations.
      dueling: whether value and advantages have separate streams.
      stream_size: units of the hidden layer in each stream; 0 for no hidden layer, where dueling has no effect.
    """

    n_step: int = 3
    batch_size: int = 128
    updates_per_call: int = 1
    replay_size: int = 200_000
    min_replay_size: int = 5000
    samples_per_insert: float = 8.0
    error_buffer: float | None = None
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4
    discount: float = 0.99
    epsilon: float = 0.4
    epsilon_alpha: float = 7.0
    evaluation_epsilon: float = 0.0
    target_update_period: int = 200
    reward_clip: float | None = None
    huber: float | None = 1.0
    optimizer: Literal["rmsprop", "adam"] = "adam"
    learning_rate: float = 5e-4
    learning_rate_decay: bool = True
    rmsprop_decay: float = 0.95
    optimizer_epsilon: float = 1e-5
    max_gradient_norm: float = 40.0
    frame_stack: int = 1
    torso: str = "auto"
    hidden_sizes: tuple[int, ...] = (256, 256)
    dueling: bool = True
    stream_size: int = 128

    def check(self, layout: Layout) -> None:
        check_action("apex", layout)
        check_torso(layout.spec, self.torso)
        check_ranges(
            self,
            at_least_one=("n_step", "updates_per_call", "target_update_period", "hidden_sizes"),
            at_least_zero=("epsilon_alpha", "stream_size"),
            from_zero_to_one=(
                "priority_exponent",
                "importance_exponent",
                "epsilon",
                "evaluation_epsilon",
                "discount",
                "rmsprop_decay",
            ),
            more_than_zero=("learning_rate", "optimizer_epsilon", "max_gradient_norm", "reward_clip", "huber"),
        )
        check_stack(layout.spec, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> QNetworks:
        make_network = functools.partial(
            q_network,
            stacked_spec(layout.spec, self.frame_stack),
            torso=self.torso,
            hidden_sizes=self.hidden_sizes,
            dueling=self.dueling,
            stream_size=self.stream_size,
        )
        return QNetworks(make_network, layout)

    def make_policy(self, networks: QNetworks, mode: Mode) -> ApexPolicy:
        return ApexPolicy(networks, self, mode)

    def make_replay(self, layout: Layout) -> TransitionReplay:
        return TransitionReplay(
            layout,
            ReplayLimits(self.replay_size, self.min_replay_size, self.samples_per_insert, self.error_buffer),
            self.batch_size,
            self.updates_per_call,
            priority_exponent=self.priority_exponent,
            first_priority=self.first_priority,
            stack=self.frame_stack,
            n_step=self.n_step,
        )

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = int(layout.max_steps * self.samples_per_insert / self.batch_size)
        optimizer = make_optimizer(
            self.optimizer,
            self.learning_rate,
            steps if self.learning_rate_decay else None,
            self.rmsprop_decay,
            self.optimizer_epsilon,
        )
        return make_q_learner(
            networks,
            functools.partial(self.loss, networks),
            optimizer,
            strategy,
            self.target_update_period,
            self.max_gradient_norm,
            self.updates_per_call,
        )

    def first_priority(self, record: Record) -> np.ndarray:
        """Returns the initial priorities of windows: their absolute TD errors (section 3) under the acting policy.

        Args:
          record: arrays of W windows, as in `replay.item_writer.Priority`; extras are `ApexExtras`.

        Returns:
          `[W]`.
        """
        valid_t = ~record.last[:-1]
        reward_t = self._clipped(record.reward)
        target, discount = np.zeros(reward_t.shape[1]), np.ones(reward_t.shape[1])
        for t in range(self.n_step):
            target += np.where(valid_t[t], discount * reward_t[t], 0.0)
            discount *= np.where(valid_t[t], self.discount * record.discount[t], 1.0)
        length = valid_t.sum(axis=0)
        target += discount * record.extras.best[length, np.arange(len(length))]
        return np.abs(target - record.extras.value[0]) + SMALLEST_PRIORITY

    def loss(self, networks: QNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's part of a batch's loss (section 3.1), with the new priorities of its windows.

        Args:
          networks: the networks of `make_networks`.
          sample: windows `[n + 1, B, ...]`, as `replay.WindowFormat.read` returns them.
        """
        record, info = sample.record, sample.info
        valid_t = valid_transitions(record.first, record.last, record.discount)
        steps = n_step_window(self._clipped(record.reward), self.discount * record.discount, valid_t)
        x_0 = tree.map_structure(lambda leaf: leaf[0], record.observation)
        x_n = take_along_time(record.observation, steps.index)

        def values(network: Network, observation: Nest, training: bool = False) -> tf.Tensor:
            return network.step(Inputs(observation), (), record.first[0], training)[0]

        q_0 = values(networks.online, x_0, training=True)
        # Keras discards the losses that layers add when they are called again.
        regularization = networks.online.regularization_loss()
        target = double_q_target(steps, values(networks.online, x_n), values(networks.target, x_n))
        delta = td_error(q_0, record.action[0], target, steps.valid)
        weight = importance_weights(info.probability, info.items, self.importance_exponent, largest_over_replicas)
        # Dividing by the global batch size makes the sum over the replicas the loss of the whole batch.
        scale = 1.0 / self.batch_size

        def mean(per_element: tf.Tensor) -> tf.Tensor:
            return scale * tf.reduce_sum(tf.cast(per_element, delta.dtype))

        loss = mean(td_loss(delta, weight, self.huber)) + regularization
        metrics = {
            "td_error": mean(tf.abs(delta)),
            "value": mean(tf.reduce_max(q_0, axis=-1)),
            "importance_weight": mean(weight),
        }
        return LossOutput(loss, metrics, priorities=tf.abs(delta) + SMALLEST_PRIORITY)

    def _clipped(self, reward: Any) -> Any:
        if self.reward_clip is None:
            return reward
        clip = tf.clip_by_value if tf.is_tensor(reward) else np.clip
        return clip(reward, -self.reward_clip, self.reward_clip)
