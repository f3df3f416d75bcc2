"""Networks for SAC, by the kind of the environment's action."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from dm_env import specs as dm_specs

from ... import specs
from ..action_policy import is_single_box
from ..actions.action_bounds import ActionBounds
from ..actions.action_parts import ActionParts
from ..distributions import Categorical, SquashedGaussian
from ..heads.heads import SquashedGaussianHead
from ..network import Network
from ..network_settings import CriticSettings
from ..recurrent import FeedForwardCore
from .actor_critic import ActorCritic, ActorCriticParts, CategoricalHead, Critics, DiscreteCritics
from .composed_actor_critic import AdditiveCritics, ComposedActorCritic, SoftParts, SoftPartsHead


def actor_critic_networks(
    spec: specs.EnvironmentSpec,
    temperature: float = 1.0,
    critics: CriticSettings = CriticSettings(),  # noqa: B008
    crossq: bool = False,
    **of_parts: Any,
) -> ActorCritic:
    """Builds the networks of SAC, including all variables.

    The policy outputs a `distributions.SquashedGaussian` for one array of numbers, a `distributions.Categorical` for
    one discrete action, and `composed_actor_critic.SoftParts` for actions of several parts.

    Args:
      spec: the environment's spec.
      temperature: initial value of alpha.
      critics: see `CriticSettings`.
      crossq: whether hidden layers are batch-renormalized, and there is no target critic.
      **of_parts: further arguments of `ActorCriticParts`.

    Raises:
      CallboardError: if a part of the action is neither discrete nor of floats with finite bounds, or a name is
        unknown.
    """
    made = ActorCriticParts(spec, **of_parts)
    encoders, own = made.encoders, made.own
    layers = made.layers._replace(normalization="batch_renorm") if crossq else made.layers
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
