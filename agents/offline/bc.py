"""Behavioral cloning: the recorded actions are learned by maximum likelihood (Pomerleau 1991, Neural Computation 3)."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf
import tree

from ...data import Layout, Nest, Sample, Timestep
from ...networks.action_policy import action_policy
from ...networks.factory import check_network, policy_value_network
from ...networks.network import Network
from ...replay import SequenceReplay, check_stack, stacked_spec, without_frames
from ...specs import EnvironmentSpec
from ...transitions import valid_transitions
from ..agent import Agent, Mode
from ..agent_names import agent_name
from ..learning.gradient_learner import GradientLearner
from ..learning.gradient_step import LossOutput
from ..learning.network_inputs import ActingNetwork, sequence_inputs
from ..learning.optimizers import make_objective
from ..learning.reward_normalizer import RewardNormalizer
from ..losses.behavioral_cloning import imitation_loss
from ..losses.replicas import global_mean, valid_mean
from ..policies.action_checks import check_discrete_or_bounded
from ..watched import Gradient, Returns, Watch
from .bc_settings import BCSettings


class BCNetworks(tf.Module):
    """The network and the policy over actions that it parametrizes."""

    def __init__(
        self,
        network: Network,
        spec: EnvironmentSpec,
        trains_value: bool = False,
        returns: RewardNormalizer | None = None,
    ):
        super().__init__()
        self.network = network
        self.actions = action_policy(spec, network)
        self.returns = returns
        """Statistics of discounted returns; None if rewards are not normalized, or not learned from."""
        self.trains_value = trains_value

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains; without a loss of the network's value, those of the policy."""
        if self.trains_value:
            return self.network.trainable_variables
        of_value = {id(variable) for variable in self.network.value_variables}
        return tuple(variable for variable in self.network.trainable_variables if id(variable) not in of_value)


class Likelihood(NamedTuple):
    """Log-probabilities of recorded actions under a policy, and the policy's entropies."""

    log_prob_t: Any
    """`[T, B]`."""
    entropy_t: Any
    """`[T, B]`."""
    valid_t: Any
    """bool `[T, B]`."""
    value: Any
    """`[T + 1, B]`, the network's value."""


class BCExtras(NamedTuple):
    """Values that the policy adds to the record."""

    previous_reward: Any
    """See `ActingNetwork.previous_reward`."""


class BCPolicy(tf.Module):
    """Samples actions, or takes the most likely ones in evaluation.

    Args:
      networks: the networks.
      mode: what the policy is for.
      frame_stack: number of frames in a stack.
    """

    def __init__(self, networks: BCNetworks, mode: Mode, frame_stack: int):
        super().__init__()
        self.network = networks.network
        self.acting = ActingNetwork(networks.network, frame_stack)
        self.actions = networks.actions
        self._best = mode == "evaluate"

    def initial_state(self, batch_size: int) -> Nest:
        return self.acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self.acting.step(timestep, state)
        chosen = self.actions.choose(outputs, timestep.observation, slot, seed, best=self._best)
        action = self.actions.to_environment(chosen)
        return action, BCExtras(self.acting.previous_reward(timestep)), self.acting.carry(state, action)


@dataclasses.dataclass(frozen=True)
class BC(BCSettings, Agent):
    """The behavioral cloning agent."""

    live: ClassVar[tuple[str, ...]] = ("optimizer.learning_rate",)
    watched: ClassVar[tuple[Watch, ...]] = (Gradient(), Returns())

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded(agent_name(self), layout.spec.action)
        check_network(layout.spec, self.network)
        check_stack(layout.spec, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> BCNetworks:
        spec = stacked_spec(layout.spec, self.frame_stack)
        return BCNetworks(policy_value_network(spec, **vars(self.network), **self.deviation), spec)

    def make_policy(self, networks: BCNetworks, mode: Mode) -> BCPolicy:
        return BCPolicy(networks, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> SequenceReplay:
        return SequenceReplay(
            layout,
            self.replay,
            self.batch_size,
            self.updates_per_call * self.accumulate,
            stack=self.frame_stack,
            length=self.trace_length,
            period=self.period,
            keep_extras=True,
            stored_state=without_frames,
        )

    def make_learner(self, networks: BCNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = self.replay.learner_steps(layout.max_timesteps / self.period, self.batch_size * self.accumulate)
        return GradientLearner(
            functools.partial(self.loss, networks),
            [make_objective("loss", networks.trainable_variables, self.optimizer, steps)],
            strategy,
            updates_per_call=self.updates_per_call,
            accumulate=self.accumulate,
            rewards=networks.returns,
        )

    def loss(self, networks: BCNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's share of a batch's loss and metrics.

        Args:
          networks: the networks of `make_networks`.
          sample: sequences `[trace_length + 1, B, ...]` with the state of an `ActingNetwork`.
        """
        found = self.likelihood(networks, sample)
        return self.summed(networks, sample, found, {"loss": imitation_loss(found.log_prob_t, found.valid_t)})

    def likelihood(self, networks: BCNetworks, sample: Sample) -> Likelihood:
        """Evaluates the actions of a batch under the policy; takes the arguments of `loss`."""
        record, network = sample.record, networks.network
        inputs, state = sequence_inputs(record, sample.state)
        outputs, _ = network.unroll(inputs, state, record.first, training=True)
        head, observation_t = tree.map_structure(lambda leaf: leaf[:-1], (outputs, record.observation))
        chosen = networks.actions.from_environment(record.action, tf.keras.backend.floatx())
        evaluation = networks.actions.evaluate(with_least_log_std(head, self.least_log_std), observation_t, chosen)
        return Likelihood(*evaluation, valid_transitions(record.first, record.last, record.discount), outputs.value)

    def summed(
        self, networks: BCNetworks, sample: Sample, found: Likelihood, losses: Mapping[str, tf.Tensor]
    ) -> LossOutput:
        """Returns the sum of losses `[T, B]` and the metrics of a batch, and updates the observations' statistics."""
        mean = global_mean(self.trace_length * self.batch_size, found.log_prob_t.dtype)
        if networks.network.normalizer is not None:
            networks.network.normalizer.update(sample.record.observation)
        shown = valid_mean(found.valid_t, found.log_prob_t.dtype)
        metrics: dict[str, Any] = {
            "log_prob": shown(found.log_prob_t),
            "entropy": shown(found.entropy_t),
            "valid_fraction": mean(found.valid_t),
        }
        if networks.trains_value:
            metrics["value"] = shown(found.value[:-1])
        if len(losses) > 1:
            metrics |= {name: shown(loss) for name, loss in losses.items()}
        loss = tf.add_n([mean(loss) for loss in losses.values()])
        return LossOutput(loss + networks.network.regularization_loss(), metrics)


def with_least_log_std(outputs: Any, least: float) -> Any:
    """Returns a policy's outputs with a lower bound of the logarithm of a deviation, where they have one Gaussian."""
    log_std = getattr(outputs, "log_std", ())
    return outputs if isinstance(log_std, tuple) else outputs._replace(log_std=tf.maximum(log_std, least))
