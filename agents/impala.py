"""IMPALA: importance-weighted actor-learner architecture (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561)."""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Nest, Sample, Timestep
from ..errors import CallboardError
from ..networks.distributions import Categorical
from ..networks.factory import check_torso, policy_value_network
from ..networks.network import Inputs, Network
from ..replay import SequenceQueue
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner, make_optimizer
from .gradient_step import LossOutput, Objective
from .losses.policy_gradient import entropy_loss, policy_gradient_loss, value_loss
from .losses.vtrace import vtrace
from .ranges import check_ranges


class ImpalaExtras(NamedTuple):
    """What the behavior policy adds to the record."""

    logits: Any
    """`[B, A]`."""


class ImpalaPolicy(tf.Module):
    """Samples actions from the policy head, or takes the most likely action in evaluation."""

    def __init__(self, network: Network, mode: Mode):
        super().__init__()
        self.network = network
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self.network.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self.network.step(Inputs(timestep.observation), state, timestep.first)
        policy = Categorical(outputs.logits)
        action = policy.mode() if self._mode == "evaluate" else policy.sample(seed)
        return action, ImpalaExtras(outputs.logits), state


@dataclasses.dataclass(frozen=True)
class Impala(Agent):
    """The IMPALA agent.  Defaults are the paper's for Atari (table G.1) where it states one, except for `reward_clip`.

    The loss is a sum over time and batch, as in the paper.  `max_gradient_norm` and `optimizer_epsilon` apply to
    gradients of this sum, so their effect depends on `unroll_length` and `batch_size`.  The recipe `impala-atari` adds
    the paper's settings that are specific to Atari.  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      unroll_length: transitions in a sequence (T).
      batch_size: sequences in a learner step, over all replicas.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      queue_batches: maximum number of batches in the queue; a longer queue means older behavior policies.
      discount: γ.
      entropy_cost: weight of the entropy bonus.
      baseline_cost: weight of the value loss.
      clip_rho: ρ-bar, upper bound of the importance weights in the V-trace targets.
      clip_c: c-bar, upper bound of the trace coefficients.
      clip_policy_gradient_rho: upper bound of the importance weights in the policy gradient.
      lambda_: λ of the trace coefficients; 1 in the paper.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip] for learning; None disables clipping.  The paper
        clips Atari rewards to [-1, 1], which would change other tasks.
      optimizer: rmsprop or adam.
      learning_rate: initial learning rate.
      learning_rate_decay: whether the learning rate decays linearly to 0 over the run, counted in timesteps of full
        batches.  These include the last timesteps of episodes, which are not environment steps, so with short episodes
        it reaches 0 slightly before the run's last environment step.
      rmsprop_decay: decay of the moving average of squared gradients, which starts at 1, as in TensorFlow 1.
      optimizer_epsilon: added under the square root of that average by RMSProp, and to the denominator by Adam.  0.01
        is the paper's for Atari; the authors' code, for DMLab, uses 0.1.
      max_gradient_norm: global norm to which gradients are clipped.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
      torso: auto, mlp, nature, impala, or package.module:factory, which takes the spec and returns a Keras model.  The
        torso sees a single frame; the paper stacks 4 Atari frames.
      core: none or lstm.  The LSTM sees only the features; the paper's also sees the previous action and reward.
      hidden_sizes: layers of the MLP for vector observations, which the paper does not have.
      lstm_size: units of the LSTM core.
    """

    unroll_length: int = 20
    batch_size: int = 32
    updates_per_call: int = 1
    queue_batches: int = 2
    discount: float = 0.99
    entropy_cost: float = 0.01
    baseline_cost: float = 0.5
    clip_rho: float = 1.0
    clip_c: float = 1.0
    clip_policy_gradient_rho: float = 1.0
    lambda_: float = 1.0
    reward_clip: float | None = None
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    learning_rate: float = 6e-4
    learning_rate_decay: bool = True
    rmsprop_decay: float = 0.99
    optimizer_epsilon: float = 0.01
    max_gradient_norm: float = 40.0
    normalize_observations: bool = True
    torso: str = "auto"
    core: Literal["none", "lstm"] = "none"
    hidden_sizes: tuple[int, ...] = (256, 256)
    lstm_size: int = 256

    def check(self, layout: Layout) -> None:
        if not isinstance(layout.spec.action, dm_specs.DiscreteArray):
            raise CallboardError(
                f"impala has a categorical policy and needs one discrete action, but the environment's action is "
                f"{specs.describe(layout.spec.action)}"
            )
        check_ranges(
            self,
            at_least_one=(
                "unroll_length",
                "batch_size",
                "updates_per_call",
                "queue_batches",
                "hidden_sizes",
                "lstm_size",
            ),
            at_least_zero=("entropy_cost", "baseline_cost"),
            from_zero_to_one=("discount", "lambda_", "rmsprop_decay"),
            more_than_zero=(
                "clip_rho",
                "clip_c",
                "clip_policy_gradient_rho",
                "reward_clip",
                "learning_rate",
                "optimizer_epsilon",
                "max_gradient_norm",
            ),
        )
        check_torso(layout.spec, self.torso)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> Network:
        return policy_value_network(
            layout.spec,
            torso=self.torso,
            core=self.core,
            hidden_sizes=self.hidden_sizes,
            lstm_size=self.lstm_size,
            normalize_observations=self.normalize_observations,
        )

    def make_policy(self, networks: Network, mode: Mode) -> ImpalaPolicy:
        return ImpalaPolicy(networks, mode)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceQueue:
        return SequenceQueue(layout, self.unroll_length, self.batch_size, self.queue_batches, self.updates_per_call)

    def make_learner(self, networks: Network, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = layout.max_steps // (self.unroll_length * self.batch_size)
        optimizer = make_optimizer(
            self.optimizer,
            self.learning_rate,
            steps if self.learning_rate_decay else None,
            self.rmsprop_decay,
            self.optimizer_epsilon,
        )
        return GradientLearner(
            functools.partial(self.loss, networks),
            [Objective("loss", networks.trainable_variables, optimizer)],
            strategy,
            self.max_gradient_norm,
            self.updates_per_call,
        )

    def loss(self, network: Network, sample: Sample) -> LossOutput:
        """Returns a replica's part of a batch's loss (section 4.2) and metrics.

        Args:
          network: computes logits and values.
          sample: sequences of T transitions, time-major as described in `Sample`.
        """
        record = sample.record
        if network.normalizer is not None:
            network.normalizer.update(record.observation)
        outputs, _ = network.unroll(Inputs(record.observation), sample.state, record.first, training=True)
        target_policy = Categorical(outputs.logits[:-1])
        behavior_policy = Categorical(record.extras.logits)
        dtype = outputs.value.dtype
        reward_t = tf.cast(record.reward, dtype)
        if self.reward_clip is not None:
            reward_t = tf.clip_by_value(reward_t, -self.reward_clip, self.reward_clip)
        valid_t = valid_transitions(record.first, record.last, record.discount)
        log_prob_t = target_policy.log_prob(record.action)
        log_rho_t = log_prob_t - tf.cast(behavior_policy.log_prob(record.action), dtype)
        targets = vtrace(
            values=outputs.value,
            r_t=reward_t,
            discount_t=self.discount * tf.cast(record.discount, dtype),
            log_rho_t=log_rho_t,
            valid_t=valid_t,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_policy_gradient_rho=self.clip_policy_gradient_rho,
            lambda_=self.lambda_,
        )

        def total(per_element: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.cast(per_element, dtype))

        # Sums over time and batch, as in the paper.  The regularization loss is per transition.
        policy_part = total(policy_gradient_loss(log_prob_t, targets.advantages, valid_t))
        baseline_part = total(value_loss(outputs.value[:-1], targets.vs, valid_t))
        entropy_part = total(entropy_loss(target_policy.entropy(), valid_t))
        transitions = self.unroll_length * self.batch_size
        loss = policy_part + self.baseline_cost * baseline_part + self.entropy_cost * entropy_part
        loss += transitions * network.regularization_loss()

        # Dividing by T times the global B, not by this replica's valid transitions, makes the sum over the replicas
        # the mean of the whole batch.
        def mean(per_element: tf.Tensor) -> tf.Tensor:
            return total(per_element) / transitions

        metrics = {
            "policy_loss": policy_part / transitions,
            "baseline_loss": baseline_part / transitions,
            "entropy": -entropy_part / transitions,
            "importance_weight": mean(tf.where(valid_t, tf.exp(log_rho_t), 0.0)),
            "value": mean(outputs.value[:-1]),
            "valid_transitions": mean(valid_t),
        }
        return LossOutput(loss, metrics)
