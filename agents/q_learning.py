"""Shared parts of agents that learn action values from prioritized replay: networks, learner and checks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Sample
from ..errors import CallboardError
from ..networks.network import Network
from ..networks.target_update import copy_weights, copy_weights_every
from .gradient_learner import GradientLearner

SMALLEST_PRIORITY = 1e-6
"""Added to every priority so that items with zero TD error can still be sampled."""


class QNetworks(tf.Module):
    """The online network, which is trained and acts, and the target network, which evaluates its targets."""

    def __init__(self, make_network: Callable[[], Network], layout: Layout):
        super().__init__()
        self.online = make_network()
        self.target = make_network()
        self.spec = layout.spec
        self.slots = layout.actors * layout.envs_per_actor
        """Number of environments of all actors, each with its own exploration rate."""


class QLearner(GradientLearner):
    """A gradient learner that returns new priorities and periodically copies the online to the target network.

    Args:
      networks: the online network is trained; the target network is initialized as a copy of it.
      target_update_period: learner steps between updates of the target network.
      **gradient: arguments of `GradientLearner` except `variables`.  The loss must also return a metric `priority`
        `[B]`, the new priorities of the replica's items, which is not summed over the replicas.
    """

    def __init__(self, networks: QNetworks, target_update_period: int, **gradient: Any):
        super().__init__(variables=networks.online.trainable_variables, **gradient)
        self._networks = networks
        self._target_update_period = target_update_period
        self._steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="steps")
        copy_weights(networks.online, networks.target)

    def _update(self, batch: Sample) -> dict[str, tf.Tensor]:
        metrics = dict(self._strategy.run(self._update_replica, args=(batch,)))
        priority = tf.concat(self._strategy.experimental_local_results(metrics.pop("priority")), axis=0)
        norm = metrics.pop("gradient_norm")
        summed = {
            name: self._strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for name, value in metrics.items()
        }
        # The same in every replica: the norm of the summed gradient.
        summed["gradient_norm"] = self._strategy.experimental_local_results(norm)[0]
        self._steps.assign_add(1)
        # Only after all replicas have used the target network.
        with tf.control_dependencies([*summed.values(), priority]):
            copy_weights_every(
                self._target_update_period, self._steps.read_value(), self._networks.online, self._networks.target
            )
        return {**summed, "priority": priority}


def check_action(name: str, layout: Layout) -> None:
    """Raises `CallboardError` unless the environment has one discrete action; `name` is the agent's name."""
    if not isinstance(layout.spec.action, dm_specs.DiscreteArray):
        raise CallboardError(
            f"{name} compares the values of actions and needs one discrete action, but the environment's action is "
            f"{specs.describe(layout.spec.action)}"
        )
