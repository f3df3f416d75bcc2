"""PPO: proximal policy optimization with clipped objectives (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Sample
from ..errors import CallboardError
from ..networks.factory import check_torso, gaussian_value_network, policy_value_network
from ..networks.heads import LOG_STD_BOUNDS
from ..networks.network import Inputs
from ..replay import SequenceQueue
from .agent import Agent, Mode
from .gradient_step import LossOutput
from .losses.policy_gradient import entropy_loss, value_loss
from .losses.ppo import approximate_kl, clipped_surrogate_loss, clipped_value_loss, log_ratio
from .ppo_learner import PpoLearner, Rates
from .ppo_policy import PpoNetworks, PpoPolicy
from .ppo_rollout import Rollout, make_rollout
from .ranges import check_ranges


@dataclasses.dataclass(frozen=True)
class Ppo(Agent):
    """The PPO agent.  Defaults are the paper's for MuJoCo (table 3) where it states one.

    The normalization of observations and rewards, learning rate decay and gradient clipping follow the authors' code
    (OpenAI Baselines).  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      unroll_length: transitions in a sequence (T).
      batch_size: sequences in an iteration, over all replicas; a multiple of the number of environments of all actors.
      epochs: passes over the batch per iteration.
      minibatches: gradient steps per epoch.
      max_policy_lag: maximum age, in learner steps (iterations), of the weights that acted when learning from their
        data begins.  With 0 actors and learner alternate, as in the paper; higher values trade staleness for speed.
      discount: γ.
      gae_lambda: λ of the advantages.
      clip: ε of the probability ratio.
      clip_decay: whether ε decays linearly to 0, as the learning rate does.
      clip_value: whether the value loss is clipped too, so that it has no gradient once the value has moved by ε.
      entropy_cost: weight of the entropy bonus.
      value_cost: weight of the value loss.
      normalize_advantages: whether advantages are standardized over the whole batch.  Other implementations standardize
        them in each minibatch.
      normalize_rewards: whether rewards are divided by the standard deviation of discounted returns, then clipped to
        [-10, 10].
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.
      target_kl: mean KL divergence from the behavior policy over an epoch above which the iteration stops; None for no
        limit.  The mean includes the epoch's first minibatches, whose divergence is small, so the same number is a
        looser limit than where each minibatch is checked (Stable-Baselines3).
      learning_rate: initial learning rate of Adam.
      learning_rate_decay: whether the learning rate decays linearly to 0 over the run, counted in timesteps of full
        batches.  These include the last timesteps of episodes, which are not environment steps, so with short episodes
        it reaches 0 slightly before the run's last environment step.
      optimizer_epsilon: added to the denominator of the update.
      max_gradient_norm: global norm to which gradients are clipped.
      initial_log_std: initial logarithm of the Gaussian policy's standard deviation, in units of half the range of an
        action.  It is kept between -10 and 2.
      std_from_observation: whether that standard deviation depends on the observation.
      torso: auto, mlp, nature, impala, or package.module:factory, which takes the spec and returns a Keras model.  The
        torso sees a single frame; the paper stacks 4 Atari frames.
      core: none or lstm.
      hidden_sizes: layers of the MLP for vector observations, shared by policy and value.
      head_sizes: separate layers of policy and value after torso and core.
      lstm_size: units of the LSTM core.
    """

    unroll_length: int = 64
    batch_size: int = 32
    epochs: int = 10
    minibatches: int = 32
    max_policy_lag: int = 0
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    clip_decay: bool = False
    clip_value: bool = False
    entropy_cost: float = 0.0
    value_cost: float = 0.5
    normalize_advantages: bool = True
    normalize_rewards: bool = True
    normalize_observations: bool = True
    target_kl: float | None = None
    learning_rate: float = 3e-4
    learning_rate_decay: bool = True
    optimizer_epsilon: float = 1e-5
    max_gradient_norm: float = 0.5
    initial_log_std: float = 0.0
    std_from_observation: bool = False
    torso: str = "auto"
    core: Literal["none", "lstm"] = "none"
    hidden_sizes: tuple[int, ...] = ()
    head_sizes: tuple[int, ...] = (64, 64)
    lstm_size: int = 128

    def check(self, layout: Layout) -> None:
        action = layout.spec.action
        is_box = isinstance(action, dm_specs.BoundedArray) and np.issubdtype(action.dtype, np.floating)
        if not isinstance(action, dm_specs.DiscreteArray) and not is_box:
            raise CallboardError(
                f"ppo needs one discrete action or one action of floats with bounds, but the environment's action is "
                f"{specs.describe(action)}"
            )
        if is_box and 0 in action.shape:
            raise CallboardError(f"ppo has nothing to choose: the environment's action is {specs.describe(action)}")
        check_ranges(
            self,
            at_least_one=(
                "unroll_length",
                "batch_size",
                "epochs",
                "minibatches",
                "hidden_sizes",
                "head_sizes",
                "lstm_size",
            ),
            at_least_zero=("max_policy_lag", "entropy_cost", "value_cost"),
            from_zero_to_one=("discount", "gae_lambda"),
            more_than_zero=("clip", "learning_rate", "optimizer_epsilon", "max_gradient_norm", "target_kl"),
        )
        lowest, highest = LOG_STD_BOUNDS
        if not lowest <= self.initial_log_std <= highest:
            raise CallboardError(
                f"agent.initial_log_std must lie between {lowest:g} and {highest:g}, not be {self.initial_log_std}"
            )
        if ":" not in self.torso and self.torso.startswith("resnet"):
            raise CallboardError(
                f"ppo compares probabilities before and after an update, and batch normalization changes them too: "
                f"take agent.torso impala or nature, not {self.torso}"
            )
        check_torso(layout.spec, self.torso)
        self._check_sizes(layout)

    def _check_sizes(self, layout: Layout) -> None:
        environments = layout.actors * layout.envs_per_actor
        if self.batch_size % environments:
            raise CallboardError(
                f"every environment gives the same number of sequences to an iteration: make agent.batch_size a "
                f"multiple of {environments} ({layout.actors} actors x {layout.envs_per_actor} environments), "
                f"not {self.batch_size}"
            )
        if layout.actors % layout.learners:
            raise CallboardError(
                f"{layout.actors} actors cannot be shared evenly by {layout.learners} learners: make actors a multiple"
            )
        self.make_replay(layout).check()
        if layout.max_steps < self.unroll_length * self.batch_size:
            raise CallboardError(
                f"learning would never begin: max_steps = {layout.max_steps} are fewer than the "
                f"{self.unroll_length * self.batch_size} of an iteration (agent.unroll_length x agent.batch_size)"
            )
        self._check_minibatches(layout, has_memory=self.core != "none")

    def _check_minibatches(self, layout: Layout, has_memory: bool) -> None:
        share, what = self.batch_size // layout.replicas, "sequences"
        if not has_memory:
            share, what = share * self.unroll_length, "transitions"
        if share % self.minibatches:
            raise CallboardError(
                f"the {share} {what} of a learner device cannot be divided into {self.minibatches} minibatches: set "
                f"agent.minibatches to {_nearest_divisor(share, self.minibatches)}"
            )

    def make_networks(self, layout: Layout) -> PpoNetworks:
        """Creates the networks; a subclass may put any `Network` with any core into its `PpoNetworks`."""
        settings: dict[str, Any] = dict(
            torso=self.torso,
            core=self.core,
            hidden_sizes=self.hidden_sizes,
            head_sizes=self.head_sizes,
            lstm_size=self.lstm_size,
            normalize_observations=self.normalize_observations,
        )
        if isinstance(layout.spec.action, dm_specs.DiscreteArray):
            network = policy_value_network(layout.spec, **settings)
        else:
            network = gaussian_value_network(
                layout.spec,
                **settings,
                initial_log_std=self.initial_log_std,
                std_from_features=self.std_from_observation,
            )
        return PpoNetworks(network, layout.spec, self.normalize_rewards)

    def make_policy(self, networks: PpoNetworks, mode: Mode) -> PpoPolicy:
        if not isinstance(networks, PpoNetworks):
            raise CallboardError(
                f"{type(self).__name__}.make_networks gives {type(networks).__name__}: let it give "
                "PpoNetworks(network, layout.spec, self.normalize_rewards)"
            )
        return PpoPolicy(networks, self.discount, mode)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceQueue:
        return SequenceQueue(
            layout,
            self.unroll_length,
            self.batch_size,
            batches=1 + self.max_policy_lag,
            max_policy_lag=self.max_policy_lag,
        )

    def make_learner(self, networks: PpoNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> PpoLearner:
        self._check_minibatches(layout, networks.has_memory)
        return PpoLearner(
            networks,
            functools.partial(self.loss, networks),
            functools.partial(self.rollout, networks),
            tf.keras.optimizers.Adam(self.learning_rate, epsilon=self.optimizer_epsilon, jit_compile=False),
            strategy,
            rates=functools.partial(self._rates, max(1, layout.max_steps // (self.unroll_length * self.batch_size))),
            parts=self.batch_size // layout.replicas // self.make_replay(layout).part_size,
            epochs=self.epochs,
            minibatches=self.minibatches,
            max_policy_lag=self.max_policy_lag,
            target_kl=self.target_kl,
            max_gradient_norm=self.max_gradient_norm,
            seed=layout.seed,
        )

    def _rates(self, iterations: int, step: int) -> Rates:
        left = max(0.0, 1.0 - step / iterations)
        return Rates(
            learning_rate=self.learning_rate * (left if self.learning_rate_decay else 1.0),
            clip=self.clip * (left if self.clip_decay else 1.0),
        )

    def rollout(self, networks: PpoNetworks, samples: Sequence[Sample], values: Sequence[tf.Tensor]) -> Rollout:
        """Returns a replica's share of an iteration's data, see `make_rollout`."""
        return make_rollout(networks, samples, values, self.discount, self.gae_lambda, self.normalize_advantages)

    def loss(self, networks: PpoNetworks, rollout: Rollout, clip: tf.Tensor) -> LossOutput:
        """Returns a replica's part of a minibatch's loss (equation (9)) and metrics.

        Args:
          networks: the networks to train.
          rollout: a replica's share of the minibatch.
          clip: ε of the probability ratio, a scalar.
        """
        network = networks.network
        outputs, _ = network.unroll(Inputs(rollout.observation), rollout.state, rollout.first, training=True)
        policy, valid_t, dtype = networks.policy(outputs), rollout.valid, outputs.value.dtype
        log_ratio_t = log_ratio(policy.log_prob(rollout.action), rollout.log_prob, valid_t)
        # Dividing by the size of the global minibatch, not by this replica's valid transitions, makes the sum over the
        # replicas the loss of the whole minibatch.
        scale = self.minibatches / (self.unroll_length * self.batch_size)

        def mean(per_element: tf.Tensor) -> tf.Tensor:
            return scale * tf.reduce_sum(tf.cast(per_element, dtype))

        policy_part = mean(clipped_surrogate_loss(log_ratio_t, rollout.advantage, valid_t, clip))
        if self.clip_value:
            of_value = clipped_value_loss(outputs.value, rollout.value, rollout.target, valid_t, clip)
        else:
            of_value = value_loss(outputs.value, rollout.target, valid_t)
        value_part = mean(of_value)
        entropy_part = mean(entropy_loss(policy.entropy(), valid_t))
        loss = policy_part + self.value_cost * value_part + self.entropy_cost * entropy_part
        loss += network.regularization_loss()
        metrics = {
            "policy_loss": policy_part,
            "value_loss": value_part,
            "entropy": -entropy_part,
            "kl": mean(approximate_kl(log_ratio_t)),
            "clipped": mean(tf.abs(tf.exp(log_ratio_t) - 1) > tf.cast(clip, dtype)),
            "value": mean(outputs.value),
            "valid_transitions": mean(valid_t),
        }
        return LossOutput(loss, metrics)


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((n for n in range(1, number + 1) if number % n == 0), key=lambda n: (abs(n - wanted), n))
