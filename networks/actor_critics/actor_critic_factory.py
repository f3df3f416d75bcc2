"""Networks for SAC, by the kind of the environment's action."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from dm_env import specs as dm_specs

from ... import specs
from ..action_policy import is_single_box
from ..actions.action_bounds import ActionBounds
from ..actions.action_parts import ActionParts
from ..distributions import Categorical, SquashedGaussian
from ..heads.heads import SquashedGaussianHead
from ..heads.own_heads import NO_OPTIONS, OwnHeads
from ..network import Network
from ..network_settings import CriticSettings
from ..recurrent import FeedForwardCore
from ..torsos.dense import Layers, Normalization
from ..torsos.encoders import Encoders
from ..torsos.torso_factory import Torso
from .actor_critic import ActorCritic, CategoricalHead, Critics, DiscreteCritics
from .composed_actor_critic import AdditiveCritics, ComposedActorCritic, SoftParts, SoftPartsHead


def actor_critic_networks(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Any = "relu",
    layer_norm: bool = False,
    temperature: float = 1.0,
    normalize_observations: bool = False,
    head: str | None = None,
    head_options: Mapping[str, Any] = NO_OPTIONS,
    critic_head: str | None = None,
    critic_head_options: Mapping[str, Any] = NO_OPTIONS,
    block: str = "plain",
    critics: CriticSettings = CriticSettings(),  # noqa: B008
    crossq: bool = False,
    **of_torso: Any,
) -> ActorCritic:
    """Builds the networks of SAC, including all variables.

    The policy outputs a `distributions.SquashedGaussian` for one array of numbers, a `distributions.Categorical` for
    one discrete action, and `composed_actor_critic.SoftParts` for actions of several parts.

    Args:
      spec: the environment's spec.
      torso: see `torso_factory.make_torso`; policy, critics and target critics each get a separate one.  `auto` and
        `mlp` pass vectors through unchanged.
      hidden_sizes: hidden layer sizes of the policy, which takes the torso's features, and of each critic, which takes
        the features and the numbers of the action.
      activation: activation of the hidden layers.
      layer_norm: see `dense.Layers`.
      temperature: initial value of alpha.
      normalize_observations: whether all networks share a `normalization.RunningNormalizer`.
      head: `package.module:factory` of another head of the policy, see `own_heads.OwnHeads`.
      head_options: its options.
      critic_head: `package.module:factory` of another head of the critics, likewise.
      critic_head_options: its options.
      block: `plain` or `simba`, for hidden layers as in `dense.Layers`.
      critics: see `CriticSettings`.
      crossq: whether hidden layers are batch-renormalized, and there is no target critic.
      **of_torso: further arguments of `torso_factory.make_torso`.

    Raises:
      CallboardError: if a part of the action is neither discrete nor of floats with finite bounds, or a name is
        unknown.
    """
    encoders = Encoders(spec, torso, activation, normalize_observations, layer_norm=layer_norm, **of_torso)
    normalization: Normalization = "batch_renorm" if crossq else "simba" if block == "simba" else layer_norm
    layers = Layers(hidden_sizes, activation, normalization)
    own = OwnHeads(head, head_options, critic_head, critic_head_options)
    parts = bounds = None
    make_policy_head: Callable[[], tf.Module]
    make_critic: Any
    if isinstance(spec.action, dm_specs.DiscreteArray):
        number = spec.action.num_values
        make_policy_head = functools.partial(CategoricalHead, number, layers)
        make_critic = functools.partial(DiscreteCritics, spec, number)
        check = own.policy_check({"logits": (number,)}, Categorical)
    elif is_single_box(spec):
        bounds = ActionBounds(spec.action)
        size = bounds.size
        make_policy_head = functools.partial(SquashedGaussianHead, size, layers)
        make_critic = functools.partial(Critics, spec, size)
        check = own.policy_check({"mean": (size,), "log_std": (size,)}, SquashedGaussian)
    else:
        parts = ActionParts(spec.action, unbounded=False)
        make_policy_head = functools.partial(SoftPartsHead, parts, layers)
        make_critic = functools.partial(AdditiveCritics, spec, parts)
        check = own.policy_check({}, SoftParts)
    policy_head = own.policy(spec, make_policy_head)
    policy = Network(spec, encoders.make(), FeedForwardCore(), policy_head, check_outputs=check)

    def critic() -> Any:
        return make_critic(encoders.make(), layers=layers, **own.critic(spec), critics=critics)

    online, target = critic(), None if crossq else critic()
    if parts is not None:
        return ComposedActorCritic(parts, policy, online, target, temperature, encoders.normalizer)
    return ActorCritic(policy, online, target, bounds, temperature, encoders.normalizer)
