"""IQL: implicit Q-learning (Kostrikov, Nair and Levine 2021, https://arxiv.org/abs/2110.06169).

The value is an expectile of the critics' values of recorded actions, so that nothing is learned of other actions.  The
policy imitates the recorded actions, weighted by their advantages.
"""

import dataclasses
import functools

import tensorflow as tf
import tree

from ...data import Layout, Nest, Sample
from ...networks.actions.action_parts import ActionParts, one_hot_choices
from ...networks.actor_critics.composed_actor_critic import AdditiveCritics
from ...networks.actor_critics.separate import SeparateNetworks
from ...networks.factory import policy_value_network
from ...networks.network import Inputs
from ...networks.normalization import RunningNormalizer
from ...networks.target_update import copy_weights, move_weights
from ...networks.torsos.dense import Layers
from ...networks.torsos.encoders import Encoders
from ...replay import stacked_spec
from ...specs import EnvironmentSpec
from ...transitions import valid_transitions
from ..agent import Mode
from ..agent_names import agent_name
from ..learning.actor_critic_checks import check_networks
from ..learning.gradient_learner import GradientLearner
from ..learning.gradient_step import LossOutput
from ..learning.optimizers import make_objective
from ..learning.reward_normalizer import make_reward_normalizer
from ..learning.transition_agent import TransitionAgent
from ..losses.behavioral_cloning import advantage_weights, imitation_loss
from ..losses.implicit_q_learning import expectile_loss, state_value_target
from ..losses.replicas import global_mean, valid_mean
from ..losses.rewards import learning_reward
from ..losses.soft_actor_critic import critic_loss
from ..policies.action_checks import check_discrete_or_bounded
from ..watched import Gradient, Quantity, Returns
from .bc import BCNetworks, BCPolicy, with_least_log_std
from .iql_settings import IQLNetworkSettings, IQLSettings


class IQLNetworks(BCNetworks):
    """Policy and value, and critics with their targets, for actions of any kind."""

    network: SeparateNetworks

    def __init__(self, agent: IQLSettings, spec: EnvironmentSpec):
        network = policy_value_network(spec, **vars(agent.network), **agent.deviation, shared=False)
        super().__init__(network, spec, trains_value=True, returns=make_reward_normalizer(agent))
        self._parts = ActionParts(spec.action)
        self.critic, self.target_critic = _critics(agent.network, spec, self._parts, network.normalizer)

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains: all but those of the target critics."""
        return (*super().trainable_variables, *self.critic.trainable_variables)

    def values(self, critic: AdditiveCritics, observation: Nest, action: Nest, dtype: tf.DType) -> tf.Tensor:
        """Returns the values `[K, B]` that critics give to actions of the environment."""
        parts = self._parts
        weight = one_hot_choices(parts, parts.choices(action), dtype) if len(parts.sizes) else ()
        return critic(observation, parts.unit_numbers(action, dtype), weight)


@dataclasses.dataclass(frozen=True)
class IQL(IQLSettings, TransitionAgent):
    """The IQL agent."""

    live = ("optimizer.learning_rate",)
    watched = (Gradient(), Quantity.VALUES, Returns())

    def check(self, layout: Layout) -> None:
        check_discrete_or_bounded(agent_name(self), layout.spec.action)
        check_networks(agent_name(self), layout.spec, self.network, self.frame_stack)
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> IQLNetworks:
        return IQLNetworks(self, stacked_spec(layout.spec, self.frame_stack))

    def make_policy(self, networks: IQLNetworks, mode: Mode) -> BCPolicy:
        return BCPolicy(networks, mode, self.frame_stack)

    def modes(self) -> tuple[Mode, ...]:
        return ("train", "evaluate", "sample")

    def make_learner(self, networks: IQLNetworks, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        # The critic may have other weights than at first, those of another run.
        copy_weights(networks.critic, networks.target_critic)
        rate = tf.constant(self.target_update_rate, tf.float64)
        return GradientLearner(
            functools.partial(self.loss, networks),
            [make_objective("loss", networks.trainable_variables, self.optimizer, self.learner_steps(layout))],
            strategy,
            updates_per_call=self.updates_per_call,
            accumulate=self.accumulate,
            after_update=lambda steps: move_weights(networks.critic, networks.target_critic, rate),
            rewards=networks.returns,
        )

    def loss(self, networks: IQLNetworks, sample: Sample) -> LossOutput:
        """Returns a replica's share of a batch's loss (algorithm 1) and metrics.

        The variables of policy, value and critics are separate, so that the sum of their losses trains each alone.

        Args:
          networks: the networks of `make_networks`.
          sample: transitions `[2, B, ...]`, as `replay.WindowFormat.read` returns them.
        """
        record, network = sample.record, networks.network
        valid_t = valid_transitions(record.first, record.last, record.discount)[0]
        action = tree.map_structure(lambda leaf: leaf[0], record.action)
        x_t, x_tp1 = (tree.map_structure(lambda leaf, time=time: leaf[time], record.observation) for time in (0, 1))
        if network.normalizer is not None:
            network.normalizer.update(x_t, leading=1)
        outputs, _ = network.step(Inputs(x_t), (), record.first[0], training=True)
        value_tp1, _ = network.value.step(Inputs(x_tp1), (), record.first[1])
        dtype = outputs.value.dtype
        log_prob_t, entropy_t = networks.actions.evaluate(
            with_least_log_std(outputs, self.least_log_std), x_t, networks.actions.from_environment(action, dtype)
        )
        q_t = tf.reduce_min(networks.values(networks.target_critic, x_t, action, dtype), axis=0)
        taken = networks.values(networks.critic, x_t, action, dtype)
        target_t = state_value_target(
            r_t=learning_reward(record.reward[0], self.reward_scale, self.reward_clip),
            discount_t=self.discount * record.discount[0],
            value_tp1=value_tp1,
        )
        weight_t = advantage_weights(q_t - outputs.value, self.inverse_temperature, self.largest_weight)
        mean, shown = global_mean(self.batch_size, dtype), valid_mean(valid_t, dtype)
        losses = {
            "policy_loss": imitation_loss(log_prob_t, valid_t, weight_t),
            "value_loss": expectile_loss(outputs.value, q_t, self.expectile, valid_t),
            "critic_loss": critic_loss(taken, target_t, valid_t),
        }
        further = {"value": outputs.value, "log_prob": log_prob_t, "entropy": entropy_t}
        metrics = {name: shown(value) for name, value in {**losses, **further}.items()}
        loss = tf.add_n([mean(value) for value in losses.values()])
        return LossOutput(loss + network.regularization_loss(), metrics)


def _critics(
    settings: IQLNetworkSettings, spec: EnvironmentSpec, parts: ActionParts, normalizer: RunningNormalizer | None
) -> list[AdditiveCritics]:
    """Makes critics and their targets, which normalize observations as policy and value do."""
    own = ("hidden_sizes", "autoregressive", "normalize_observations")
    of_torso = {name: value for name, value in vars(settings).items() if name not in own}
    encoders = Encoders(spec, normalizer=normalizer, **of_torso)
    layers = Layers(settings.hidden_sizes, settings.activation, settings.layer_norm)
    return [AdditiveCritics(spec, parts, encoders.make(), layers=layers) for _ in range(2)]
