"""R2D2: recurrent replay distributed DQN (Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX)."""

import dataclasses
import functools
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tree

from ..data import Layout, Record, Sample
from ..errors import CallboardError
from ..networks.factory import check_torso, q_network
from ..networks.network import Inputs, Network
from ..replay import ReplayLimits, SequenceReplay, check_stack, stacked_spec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner, make_optimizer
from .gradient_step import LossOutput
from .losses.prioritization import importance_weights, mixed_priority
from .losses.q_learning import sequence_double_q_targets, td_error, td_loss
from .losses.replicas import largest_over_replicas
from .losses.value_rescaling import EPSILON, inverse_rescale
from .q_learning import SMALLEST_PRIORITY, QNetworks, check_action, make_q_learner
from .r2d2_policy import R2D2Policy, without_frames
from .ranges import check_ranges


@dataclasses.dataclass(frozen=True)
class R2D2(Agent):
    """The R2D2 agent.  Defaults are for one machine; the recipe `r2d2-atari` has the paper's (section 2.3, table 2).

    The paper's settings, for 256 actors and 10 billion frames, are too large for a machine without a GPU, and with them
    nothing is learned within a million steps, since the target network is first updated after millions.  Here
    sequences, batches, layers and the discount are smaller, the learning rate is larger, and the target network is
    updated more often.  Returns, priorities, exploration and value rescaling are the paper's.  docs/defaults.md
    compares all defaults with the papers'.

    A sequence holds `burn_in + trace_length` transitions of one environment and may cross the end of an episode: there
    the recurrent state is reset, and the transition to the next episode is not valid.  In the paper a sequence ends
    with its episode.

    Attributes:
      burn_in: transitions at the start of a sequence that only refresh the stored recurrent state.
      trace_length: transitions after the burn-in, which are learned from.
      period: steps of an environment from the start of one sequence to the start of the next.
      n_step: transitions in a return (n); fewer at the end of a sequence.
      batch_size: sequences in a learner step, over all replicas.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      replay_size: maximum number of sequences in replay, over all shards; the oldest are evicted.
      min_replay_size: sequences in replay before learning begins.
      samples_per_insert: average number of times that a sequence is learned from; in the paper actors and learner run
        freely.
      error_buffer: samples by which learning may run ahead of or behind samples_per_insert; None for a suitable number.
      priority_exponent: α, sequences are sampled in proportion to priority^α; 0 samples uniformly.
      priority_eta: η, weight of the largest TD error in a priority; the mean TD error has weight 1 - η.
      importance_exponent: β, how far importance weights correct the bias of prioritized sampling.
      discount: γ.
      epsilon: exploration rate of the first environment, constant over the run.  A single environment explores at this
        rate and needs a lower one.
      epsilon_alpha: the last environment explores at rate epsilon^(1 + epsilon_alpha), the others in between.
      evaluation_epsilon: rate of random actions in evaluation; 0.001 or 0.01 is usual on Atari, where a policy without
        random actions may repeat an action without effect until the time limit.
      target_update_period: learner steps between updates of the target network.
      rescale_values: whether the network learns rescaled values h(Q) instead of Q.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip] for learning; None disables clipping.
      learning_rate: initial learning rate of Adam.
      learning_rate_decay: whether the learning rate decays linearly to 0 over the run, counted in timesteps of full
        batches.  These include the last timesteps of episodes, which are not environment steps, so with short episodes
        it reaches 0 slightly before the run's last environment step.
      optimizer_epsilon: added to the denominator of the update.  Like `max_gradient_norm`, it applies to gradients of a
        loss that is a sum over the `trace_length` steps of a sequence and a mean over sequences, as in the authors'
        published code (SEED RL).
      max_gradient_norm: global norm to which gradients are clipped.
      frame_stack: number of most recent images that the network sees; replay stores each image once.
      torso: auto, mlp, nature, impala, or package.module:factory, which takes the spec and returns a Keras model.
      core: lstm, or none for a network without memory.
      hidden_sizes: layers of the MLP for vector observations.
      lstm_size: units of the LSTM core.
      previous_inputs: whether the core also sees the previous action and the previous reward, which is not clipped.
      dueling: whether value and advantages have separate streams.
      stream_size: units of the hidden layer in each stream; 0 for no hidden layer.
    """

    burn_in: int = 20
    trace_length: int = 40
    period: int = 20
    n_step: int = 5
    batch_size: int = 32
    updates_per_call: int = 1
    replay_size: int = 20_000
    min_replay_size: int = 200
    samples_per_insert: float = 32.0
    error_buffer: float | None = None
    priority_exponent: float = 0.9
    priority_eta: float = 0.9
    importance_exponent: float = 0.6
    discount: float = 0.99
    epsilon: float = 0.4
    epsilon_alpha: float = 7.0
    evaluation_epsilon: float = 0.0
    target_update_period: int = 100
    rescale_values: bool = True
    reward_clip: float | None = None
    learning_rate: float = 1e-3
    learning_rate_decay: bool = True
    optimizer_epsilon: float = 1e-3
    max_gradient_norm: float = 40.0
    frame_stack: int = 1
    torso: str = "auto"
    core: Literal["none", "lstm"] = "lstm"
    hidden_sizes: tuple[int, ...] = (128, 128)
    lstm_size: int = 128
    previous_inputs: bool = True
    dueling: bool = True
    stream_size: int = 128

    @property
    def _length(self) -> int:
        return self.burn_in + self.trace_length

    @property
    def _rescaling(self) -> float | None:
        return EPSILON if self.rescale_values else None

    def check(self, layout: Layout) -> None:
        check_action("r2d2", layout)
        check_torso(layout.spec, self.torso)
        check_ranges(
            self,
            at_least_one=(
                "trace_length",
                "period",
                "n_step",
                "updates_per_call",
                "target_update_period",
                "lstm_size",
                "hidden_sizes",
            ),
            at_least_zero=("burn_in", "epsilon_alpha", "stream_size"),
            from_zero_to_one=(
                "priority_exponent",
                "priority_eta",
                "importance_exponent",
                "discount",
                "epsilon",
                "evaluation_epsilon",
            ),
            more_than_zero=("learning_rate", "optimizer_epsilon", "max_gradient_norm", "reward_clip"),
        )
        for name in ("period", "n_step"):
            if getattr(self, name) > self.trace_length:
                raise CallboardError(
                    f"agent.{name} must be at most agent.trace_length ({self.trace_length}), not {getattr(self, name)}"
                )
        check_stack(layout.spec, self.frame_stack)
        self.make_replay(layout).check()
        envs = layout.actors * layout.envs_per_actor
        sequences = max(0, envs * ((layout.max_steps // envs - 1 - self._length) // self.period + 1))
        if sequences < self.min_replay_size:
            raise CallboardError(
                f"learning would never begin: max_steps = {layout.max_steps} in {envs} environments make {sequences} "
                f"sequences of {self._length} transitions, and agent.min_replay_size is {self.min_replay_size}"
            )

    def make_networks(self, layout: Layout) -> QNetworks:
        make_network = functools.partial(
            q_network,
            stacked_spec(layout.spec, self.frame_stack),
            torso=self.torso,
            core=self.core,
            hidden_sizes=self.hidden_sizes,
            lstm_size=self.lstm_size,
            dueling=self.dueling,
            stream_size=self.stream_size,
            previous_inputs=self.previous_inputs,
        )
        return QNetworks(make_network, layout)

    def make_policy(self, networks: QNetworks, mode: Mode) -> R2D2Policy:
        return R2D2Policy(networks, self, mode)

    def make_replay(self, layout: Layout) -> SequenceReplay:
        return SequenceReplay(
            layout,
            ReplayLimits(self.replay_size, self.min_replay_size, self.samples_per_insert, self.error_buffer),
            self.batch_size,
            self.updates_per_call,
            priority_exponent=self.priority_exponent,
            first_priority=self.first_priority,
            stack=self.frame_stack,
            length=self._length,
            period=self.period,
            keep_extras=True,
            stored_state=without_frames,
        )

    def make_learner(self, networks: QNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = int(layout.max_steps / self.period * self.samples_per_insert / self.batch_size)
        decay_steps = steps if self.learning_rate_decay else None
        return make_q_learner(
            networks,
            functools.partial(self.loss, networks),
            make_optimizer("adam", self.learning_rate, decay_steps, 0.0, self.optimizer_epsilon),
            strategy,
            self.target_update_period,
            self.max_gradient_norm,
            self.updates_per_call,
        )

    def first_priority(self, record: Record) -> np.ndarray:
        """Returns the initial priorities of sequences, from the values that the policy acted on.

        Args:
          record: arrays of W sequences, as in `replay.item_writer.Priority`; extras are `R2D2Extras`.

        Returns:
          `[W]`.
        """
        trace = self._trace(record)
        delta_t, valid_t = self._td_errors(trace, trace.extras.q, trace.extras.q)
        return self._priority(delta_t, valid_t).numpy()

    def loss(self, networks: QNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's part of a batch's loss (section 2.3), with the new priorities of its sequences.

        Args:
          networks: the networks of `make_networks`.
          sample: sequences `[burn_in + trace_length + 1, B, ...]` with an `R2D2State`, as `replay.SequenceFormat.read`
            returns them.
        """
        trace, info = self._trace(sample.record), sample.info
        q_online = self._values(networks.online, sample, training=True)
        delta_t, valid_t = self._td_errors(trace, q_online, self._values(networks.target, sample))
        weight = importance_weights(info.probability, info.items, self.importance_exponent, largest_over_replicas)

        def mean(per_element: tf.Tensor) -> tf.Tensor:
            # Dividing by the global batch size makes the sum over the replicas the loss of the whole batch.
            size = self.batch_size * (self.trace_length if per_element.shape.rank == 2 else 1)
            return tf.reduce_sum(tf.cast(per_element, delta_t.dtype)) / size

        # A mean over sequences of sums over time.  The regularization loss is per transition.
        loss = self.trace_length * (mean(td_loss(delta_t, weight)) + networks.online.regularization_loss())
        value_t = tf.reduce_max(q_online[:-1], axis=-1)
        metrics = {
            "td_error": mean(tf.abs(delta_t)),
            "value": mean(inverse_rescale(value_t) if self.rescale_values else value_t),
            "importance_weight": mean(weight),
            "valid_transitions": mean(valid_t),
        }
        return LossOutput(loss, metrics, self._priority(delta_t, valid_t))

    def _values(self, network: Network, sample: Sample, training: bool = False) -> tf.Tensor:
        """Returns the values `[trace_length + 1, B, A]` after the burn-in, through which no gradients flow."""
        record, state, burn_in = sample.record, sample.state, self.burn_in
        inputs = Inputs(
            record.observation,
            tf.concat([state.previous_action[tf.newaxis], record.action], axis=0),
            tf.concat([record.extras.previous_reward[:1], record.reward], axis=0),
        )
        core = state.core
        if burn_in:
            before = tree.map_structure(lambda leaf: leaf[:burn_in], inputs)
            _, core = network.unroll(before, core, record.first[:burn_in])
            core = tree.map_structure(tf.stop_gradient, core)
        after = tree.map_structure(lambda leaf: leaf[burn_in:], inputs)
        q, _ = network.unroll(after, core, record.first[burn_in:], training)
        return q

    def _trace(self, record: Record) -> Record:
        return tree.map_structure(lambda leaf: leaf[self.burn_in :], record)

    def _td_errors(self, trace: Record, q_online: Any, q_target: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns TD errors and the mask of valid transitions, `[trace_length, B]`."""
        valid_t = valid_transitions(trace.first, trace.last, trace.discount)
        reward_t = tf.convert_to_tensor(trace.reward)
        if self.reward_clip is not None:
            reward_t = tf.clip_by_value(reward_t, -self.reward_clip, self.reward_clip)
        discount_t = self.discount * tf.cast(trace.discount, q_target.dtype)
        target_t = sequence_double_q_targets(
            q_online, q_target, reward_t, discount_t, valid_t, self.n_step, self._rescaling
        )
        return td_error(q_online[:-1], trace.action, target_t, valid_t), valid_t

    def _priority(self, delta_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
        return mixed_priority(delta_t, valid_t, self.priority_eta) + SMALLEST_PRIORITY
