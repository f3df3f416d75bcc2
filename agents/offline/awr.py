"""AWR: regression on recorded actions, weighted by their advantages (Peng et al. 2019, arXiv:1910.00177).

The advantages are those of returns along recorded sequences over a value that is learned with the policy.
"""

import dataclasses

import tensorflow as tf

from ...data import Layout, Sample
from ...networks.factory import policy_value_network
from ...replay import SequenceReplay, stacked_spec
from ..learning.gradient_step import LossOutput
from ..learning.reward_normalizer import make_reward_normalizer, returns_discount
from ..losses.behavioral_cloning import advantage_weights, imitation_loss
from ..losses.gae import gae, standardized
from ..losses.replicas import sum_over_replicas
from ..losses.rewards import learning_reward
from ..losses.shapes import where_valid
from ..watched import Gradient, Quantity, Returns
from .bc import BC, BCNetworks
from .bc_settings import AWRSettings


@dataclasses.dataclass(frozen=True)
class AWR(AWRSettings, BC):
    """The AWR agent."""

    watched = (Gradient(), Quantity.VALUES, Returns())

    def make_networks(self, layout: Layout) -> BCNetworks:
        spec = stacked_spec(layout.spec, self.frame_stack)
        network = policy_value_network(spec, **vars(self.network), **self.deviation)
        return BCNetworks(network, spec, trains_value=True, returns=make_reward_normalizer(self))

    def make_replay(self, layout: Layout) -> SequenceReplay:
        return dataclasses.replace(super().make_replay(layout), returns_discount=returns_discount(self))

    def loss(self, networks: BCNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's share of a batch's loss (algorithm 1) and metrics; arguments as those of BC's."""
        found, record = self.likelihood(networks, sample), sample.record
        returns = gae(
            found.value,
            learning_reward(record.reward, self.reward_scale, self.reward_clip),
            self.discount * record.discount,
            found.valid_t,
            self.trace_decay,
        )
        advantage_t = standardized(returns.advantages, found.valid_t, sum_over_replicas)
        weight_t = advantage_weights(advantage_t, 1.0 / self.temperature, self.largest_weight)
        value_loss = where_valid(found.valid_t, tf.square(found.value[:-1] - returns.targets))
        losses = {
            "policy_loss": imitation_loss(found.log_prob_t, found.valid_t, weight_t),
            "value_loss": self.value_cost * value_loss,
        }
        return self.summed(networks, sample, found, losses)
