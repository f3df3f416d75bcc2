"""A3C: asynchronous advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, algorithm S3).

Actors are the paper's workers: each computes the gradient of its own timesteps at the weights that it has, and the
learner applies the gradients one by one as they arrive, however old they are.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from .. import specs
from ..data import Layout, Sample, Update
from ..errors import CallboardError
from ..networks.network import Network
from ..replay import GradientItem, GradientQueue, ReplayHandle
from .a2c import A2C
from .agent import Agent, Mode
from .fast_function import CompiledOnFirstCall
from .learning.actor_critic_checks import check_networks
from .learning.decaying_rate import continue_decay
from .learning.gradient_step import GradientStep, LossOutput, Objective
from .learning.gradient_writer import GradientWriter, with_gradient
from .learning.live_settings import with_value
from .learning.on_policy import mean_of_valid
from .learning.optimizers import make_objective
from .learning.reward_normalizer import returns_discount
from .policies.action_checks import check_discrete_or_bounded
from .policies.ppo_policy import PpoNetworks, PpoPolicy
from .schedules import Schedule
from .settings.a2c_settings import A3CSettings, AdvantageSettings
from .watched import Gradient, Quantity, Returns

_METRICS = ("entropy", "policy_loss", "valid_fraction", "value", "value_loss")
"""A2C's metrics of a loss, in alphabetical order."""


class A3CNetworks(PpoNetworks):
    """A2C's networks, and the weight of the entropy, which workers fetch with the weights."""

    def __init__(
        self, network: Network, spec: specs.EnvironmentSpec, normalize_rewards: bool, entropy_cost: float | Schedule
    ):
        super().__init__(network, spec, normalize_rewards)
        first = entropy_cost.at(0, 1) if isinstance(entropy_cost, Schedule) else entropy_cost
        self.entropy_cost = tf.Variable(first, trainable=False, dtype=tf.keras.backend.floatx(), name="entropy_cost")


class A3CPolicy(PpoPolicy):
    """A2C's policy, with all variables that a worker's gradient depends on."""

    def __init__(self, networks: A3CNetworks, mode: Mode, frame_stack: int = 1):
        super().__init__(networks, mode, frame_stack)
        self.entropy_cost = networks.entropy_cost
        self.returns = networks.returns


class A3CLearner(tf.Module):
    """A learner that applies one worker's gradient in a step.

    Args:
      networks: what it trains.
      objective: the loss, and the optimizer, whose state all workers share.
      strategy: the strategy in whose scope networks and optimizer were created.
      entropy_cost: the weight of the entropy that workers use next; a number, or a variable that may change.
    """

    def __init__(
        self, networks: A3CNetworks, objective: Objective, strategy: tf.distribute.Strategy, entropy_cost: Any
    ):
        super().__init__()
        self.optimizer = objective.optimizer
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        self._networks = networks
        self._strategy = strategy
        self._entropy_cost = entropy_cost
        self._gradient_step = GradientStep([objective], strategy)
        self._apply = CompiledOnFirstCall(self._gradient_applied)

    def step(self, iterator: Iterator[Any]) -> Update:
        """Applies the next gradient of `iterator`."""
        item = next(iterator)
        metrics = self._apply(item)
        version, valid = (
            self._strategy.experimental_local_results(leaf)[0].numpy() for leaf in (item.version, item.valid)
        )
        # The versions of weights from before the learner was restored from an older checkpoint are higher.
        age = np.maximum(int(self.steps.numpy()) - version[..., 1], 0)
        self.steps.assign_add(1)
        # The gradient is that of the weights that acted last, whether or not an episode ended there.
        lags = {"policy_lag": mean_of_valid(age, valid), "gradient_staleness": age[-1].mean()}
        return Update({**metrics, **lags}, finite=self._gradient_step.finite)

    def continue_decay(self) -> bool:
        """See `GradientLearner`."""
        return continue_decay(self.optimizer)

    def _gradient_applied(self, item: GradientItem) -> dict[str, tf.Tensor]:
        metrics, _ = self._gradient_step(self._loss, item)
        self._networks.entropy_cost.assign(tf.cast(self._entropy_cost, self._networks.entropy_cost.dtype))
        return metrics

    def _loss(self, item: GradientItem) -> LossOutput:
        network = self._networks.network
        loss, *values = tf.unstack(item.metrics, 1 + len(_METRICS))
        loss = with_gradient(loss, item.gradient, network.trainable_variables)
        if network.normalizer is not None:
            network.normalizer.update(item.observation)
        if self._networks.returns is not None:
            self._networks.returns.update(item.discounted_return, weight=item.valid)
        return LossOutput(loss, dict(zip(_METRICS, values, strict=True)))


@dataclasses.dataclass(frozen=True)
class A3C(A3CSettings, Agent):
    """The A3C agent."""

    live = ("optimizer.learning_rate", "entropy_cost")
    watched = (Gradient(), Quantity.ENTROPY, Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded("a3c", layout.spec.action)
        check_networks("a3c", layout.spec, self.network, self.frame_stack)
        if self.network.popart.enabled:
            raise CallboardError(
                "a3c computes gradients in actors, which have no statistics of all returns: leave "
                "agent.network.popart.enabled out, or use a2c"
            )
        images = [leaf.dtype for leaf in tree.flatten(layout.spec.observation) if specs.is_image(leaf)]
        if self.frame_stack > 1 and self.network.normalize_observations and np.dtype(np.float32) in images:
            raise CallboardError(
                "a3c does not normalize stacked images of floats: set agent.network.normalize_observations to false"
            )
        if layout.replicas != 1:
            raise CallboardError(
                f"a3c applies the gradients of actors one by one and needs one learner device, not {layout.replicas}: "
                "set learners to 1 and learner_devices to one device, and add actors instead"
            )
        self.make_replay(layout).check()
        block = self.unroll_length * layout.envs_per_actor * layout.actors
        if layout.max_timesteps < block:
            raise CallboardError(
                f"learning would never begin: max_steps = {layout.max_steps} are fewer than the "
                f"{block // layout.agents_per_env} of one block of each actor (agent.unroll_length x envs_per_actor x "
                f"actors); set max_steps to at least {block // layout.agents_per_env}, or lower agent.unroll_length"
            )

    def make_networks(self, layout: Layout) -> A3CNetworks:
        network = self._worker(layout).make_networks(layout).network
        return A3CNetworks(network, layout.spec, self.normalize_rewards, self.entropy_cost)

    def make_policy(self, networks: A3CNetworks, mode: Mode) -> A3CPolicy:
        return A3CPolicy(networks, mode, self.frame_stack)

    def acting_spec(self, spec: specs.EnvironmentSpec) -> specs.EnvironmentSpec:
        return self.network.acting_spec(spec)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_replay(self, layout: Layout) -> GradientQueue:
        floats = any(leaf.dtype.kind == "f" for leaf in tree.flatten(layout.spec.observation))
        statistics = floats and self.network.normalize_observations
        return GradientQueue(
            layout,
            self.unroll_length,
            self.waiting_gradients,
            keeps_observations=statistics,
            returns_discount=returns_discount(self),
        )

    def make_writer(self, replay: ReplayHandle, layout: Layout, actor: int, networks: A3CNetworks) -> GradientWriter:
        queue = self.make_replay(layout)
        # Its own copy of the weight of the entropy changes with the weights.
        worker = with_value(self._worker(layout), ["entropy_cost"], networks.entropy_cost)

        def loss(sample: Sample) -> LossOutput:
            reward = sample.record.reward
            return worker.sequences_loss(
                networks, sample, reward if networks.returns is None else networks.returns(reward)
            )

        variables = networks.network.trainable_variables
        return GradientWriter(queue.writer(replay, actor), queue, layout, loss, variables, self.frame_stack)

    def make_learner(self, networks: A3CNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> A3CLearner:
        steps = layout.max_timesteps // (self.unroll_length * layout.envs_per_actor)
        network = networks.network
        of_value = (getattr(network, "value_variables", ()), self.value_learning_rate_scale)
        objective = make_objective("loss", network.trainable_variables, self.optimizer, steps, *of_value)
        return A3CLearner(networks, objective, strategy, self.entropy_cost)

    def _worker(self, layout: Layout) -> A2C:
        """Returns A2C with a batch of an actor's environments, whose loss is that of a worker."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(AdvantageSettings)}
        return A2C(**shared, batch_size=layout.envs_per_actor)
