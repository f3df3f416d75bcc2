"""CQL: SAC with values that are kept low where no actions were recorded (Kumar et al. 2020, arXiv:2006.04779)."""

import dataclasses
import math
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ... import specs
from ...data import Layout, Nest, Sample
from ...errors import CallboardError
from ...networks import stateless_random as noise
from ...networks.action_policy import is_single_box
from ...networks.actions.legal_actions import legal_actions
from ...networks.actor_critics.actor_critic import ActorCritic
from ...networks.distributions import SquashedGaussian
from ...networks.gathers import gather
from ...networks.network import Inputs
from ...networks.random_streams import Stream
from ...transitions import valid_transitions
from ..losses.conservative_q_learning import conservative_gap, discrete_conservative_gap
from ..losses.q_learning import action_value
from ..losses.replicas import global_index
from ..sac import Sac, SoftTerms
from ..settings.sac_settings import CQLSettings


@dataclasses.dataclass(frozen=True)
class CQL(CQLSettings, Sac):
    """The CQL agent."""

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if not (isinstance(layout.spec.action, dm_specs.DiscreteArray) or is_single_box(layout.spec)):
            raise CallboardError(
                "cql takes one discrete action or one array of floats, and the environment's action is "
                f"{specs.describe(layout.spec.action)}: use iql, which takes actions of several parts"
            )
        given = {
            "crossq": self.crossq,
            "critics.quantiles": self.critics.quantiles is not None,
            "critics.dropout": self.critics.dropout > 0,
        }
        for setting in (setting for setting, is_given in given.items() if is_given):
            raise CallboardError(f"cql has a penalty on values of other actions: leave agent.{setting} out, or use sac")

    def losses(
        self, networks: ActorCritic, sample: Sample, seed: tf.Tensor, target_t: tf.Tensor, taken: Any = None
    ) -> SoftTerms:
        """Returns SAC's losses, that of the critics with the penalty (equation (4))."""
        terms = super().losses(networks, sample, seed, target_t, taken)
        gap_t = self._gap(networks, sample, seed)
        gap = gap_t / self.critics.number
        return terms._replace(critic_loss=terms.critic_loss + self.conservative_weight * gap_t, gap=gap)

    def _gap(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the critics' penalties `[B]`."""
        record = sample.record
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        x_t, x_tp1 = (tree.map_structure(lambda leaf, time=time: leaf[time], record.observation) for time in (0, 1))
        if networks.bounds is None:
            legal_t = legal_actions(x_t)
            return tf.add_n(
                [
                    discrete_conservative_gap(q, action_value(q, record.action[0]), valid_t, legal_t)
                    for q in tf.unstack(networks.critic(x_t))
                ]
            )
        actions, log_density_t = self._sampled(networks, x_t, x_tp1, seed, tf.shape(valid_t)[0])
        number = 3 * self.action_samples
        rows = tf.repeat(tf.range(tf.shape(tree.flatten(x_t)[0])[0]), number)
        repeated = tree.map_structure(lambda leaf: gather(leaf, rows), x_t)
        sampled = networks.critic(repeated, tf.reshape(actions, (-1, networks.bounds.size)))
        taken = networks.critic(x_t, networks.bounds.from_environment(record.action[0], actions.dtype))
        return tf.add_n(
            [
                conservative_gap(tf.reshape(q, (-1, number)), log_density_t, q_t, valid_t)
                for q, q_t in zip(tf.unstack(sampled), tf.unstack(taken), strict=True)
            ]
        )

    def _sampled(self, networks: Any, x_t: Nest, x_tp1: Nest, seed: Any, batch_size: Any) -> tuple[Any, Any]:
        """Samples unit actions `[B, 3 N, D]`: uniform ones, and those of the policy before and after the transition.

        Returns:
          The actions, and the logarithms of the densities that they were sampled from, `[B, 3 N]`.
        """
        index, shape = global_index(batch_size), (self.action_samples, networks.bounds.size)
        dtype = networks.log_alpha.dtype
        actions = [2 * noise.uniform(seed, Stream.PENALTY_UNIFORM, index, shape, dtype) - 1]
        log_density = [tf.fill((batch_size, self.action_samples), tf.cast(-shape[1] * math.log(2), dtype))]
        for observation, stream in ((x_t, Stream.PENALTY_ACTION), (x_tp1, Stream.PENALTY_NEXT_ACTION)):
            policy, _ = networks.policy.step(Inputs(observation), (), tf.zeros((batch_size,), tf.bool))
            several = SquashedGaussian(policy.mean[:, tf.newaxis], policy.log_std[:, tf.newaxis])
            action, log_prob = several.sample_and_log_prob(noise.standard_normal(seed, stream, index, shape, dtype))
            actions.append(action)
            log_density.append(log_prob)
        return tf.stop_gradient(tf.concat(actions, axis=1)), tf.concat(log_density, axis=1)
