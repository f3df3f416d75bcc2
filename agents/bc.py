"""Behavioral cloning: the recorded actions are learned by maximum likelihood (Pomerleau 1991, Neural Computation 3)."""

import dataclasses
import functools
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ..data import Layout, Nest, Sample, Timestep
from ..networks.action_policy import action_policy
from ..networks.factory import check_network, policy_value_network
from ..networks.network import Network
from ..replay import SequenceReplay, check_stack, stacked_spec, without_frames
from ..specs import EnvironmentSpec
from ..transitions import valid_transitions
from .agent import Agent, Mode
from .gradient_learner import GradientLearner
from .gradient_step import LossOutput
from .losses.behavioral_cloning import imitation_loss
from .losses.replicas import global_mean
from .optimizers import make_objective
from .policies.action_checks import check_discrete_or_bounded
from .policies.network_inputs import ActingNetwork, sequence_inputs
from .settings.bc_settings import BCSettings


class BCNetworks(tf.Module):
    """The network and the policy over actions that it parametrizes."""

    def __init__(self, network: Network, spec: EnvironmentSpec):
        super().__init__()
        self.network = network
        self.actions = action_policy(spec, network)

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains; the network's value has no loss."""
        of_value = {id(variable) for variable in self.network.value_variables}
        return tuple(variable for variable in self.network.trainable_variables if id(variable) not in of_value)


class BCExtras(NamedTuple):
    """What the policy adds to the record."""

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
        self._acting = ActingNetwork(networks.network, frame_stack)
        self._actions = networks.actions
        self._best = mode == "evaluate"

    def initial_state(self, batch_size: int) -> Nest:
        return self._acting.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self._acting.step(timestep, state)
        chosen = self._actions.choose(outputs, timestep.observation, slot, seed, best=self._best)
        action = self._actions.to_environment(chosen)
        return action, BCExtras(self._acting.previous_reward(timestep)), self._acting.carry(state, action)


@dataclasses.dataclass(frozen=True)
class BC(BCSettings, Agent):
    """The behavioral cloning agent."""

    live = ("optimizer.learning_rate",)

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded("bc", layout.spec.action)
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
        )

    def loss(self, networks: BCNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's part of a batch's loss and metrics.

        Args:
          networks: the networks of `make_networks`.
          sample: sequences `[trace_length + 1, B, ...]` with the state of an `ActingNetwork`.
        """
        record, network = sample.record, networks.network
        inputs, state = sequence_inputs(record, sample.state)
        outputs, _ = network.unroll(inputs, state, record.first, training=True)
        head, observation_t = tree.map_structure(lambda leaf: leaf[:-1], (outputs, record.observation))
        chosen = networks.actions.from_environment(record.action, tf.keras.backend.floatx())
        log_prob_t, entropy_t = networks.actions.evaluate(self._bounded(head), observation_t, chosen)
        valid_t = valid_transitions(record.first, record.last, record.discount)
        mean = global_mean(self.trace_length * self.batch_size, log_prob_t.dtype)
        if network.normalizer is not None:
            network.normalizer.update(record.observation)
        metrics = {"log_prob": mean(log_prob_t), "entropy": mean(entropy_t), "valid_fraction": mean(valid_t)}
        return LossOutput(mean(imitation_loss(log_prob_t, valid_t)) + network.regularization_loss(), metrics)

    def _bounded(self, outputs: Any) -> Any:
        """Returns the network's outputs with `least_log_std`, where they have one Gaussian."""
        log_std = getattr(outputs, "log_std", ())
        return (
            outputs if isinstance(log_std, tuple) else outputs._replace(log_std=tf.maximum(log_std, self.least_log_std))
        )
