"""What agents that learn action values from prioritized replay share: two networks, a learner, checks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import CallboardError, Layout, Sample
from ..networks.network import Network
from ..networks.target_update import copy_weights, copy_weights_every
from .gradient_learner import GradientLearner

SMALLEST_PRIORITY = 1e-6
"""Added to every priority: what is learned by heart may be drawn again."""


class QNetworks(tf.Module):
    """The network that learns and acts, and the one that says what its targets are worth."""

    def __init__(self, make_network: Callable[[], Network], layout: Layout):
        super().__init__()
        self.online = make_network()
        self.target = make_network()
        self.spec = layout.spec
        self.slots = layout.actors * layout.envs_per_actor
        """Environments of all actors: steps of the ladder of exploration."""


class QLearner(GradientLearner):
    """Learns by gradient, gives each item a new priority, and copies the network to the target network at times.

    Args:
      networks: the online network is trained; the target network begins as a copy of it.
      target_update_period: learner steps after which the target network is renewed.
      **gradient: as of `GradientLearner`, but for the variables.  The metrics of the loss hold one, `priority` `[B]`,
        that is not added up: the new priorities of the replica's items.
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
        # Every replica has worked out the same norm, of the summed gradient.
        summed["gradient_norm"] = self._strategy.experimental_local_results(norm)[0]
        self._steps.assign_add(1)
        # Not before all replicas have used the target.
        with tf.control_dependencies([*summed.values(), priority]):
            copy_weights_every(
                self._target_update_period, self._steps.read_value(), self._networks.online, self._networks.target
            )
        return {**summed, "priority": priority}


def check_action(name: str, layout: Layout) -> None:
    """Raises `CallboardError` where the agent with that name cannot act: it needs one discrete action."""
    if not isinstance(layout.spec.action, dm_specs.DiscreteArray):
        raise CallboardError(
            f"{name} compares the values of actions and needs one discrete action, but the environment's action is "
            f"{specs.describe(layout.spec.action)}"
        )
