"""Default networks, built from the names of torsos and cores."""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..errors import CallboardError
from .action_policy import is_single_box
from .actions.action_parts import ActionParts
from .actor_critics.separate import SeparateNetworks, check_critic_state
from .core_factory import check_outputs, check_own_parts, make_core, make_own_head
from .heads.branching_heads import BranchingQHead
from .heads.composed_heads import AutoregressiveValueHead, ComposedValueHead
from .heads.heads import DistributionalQHead, DuelingQHead, GaussianValueHead, PolicyValueHead, QHead, ValueHead
from .heads.implicit_quantiles import ImplicitQuantileHead
from .heads.popart import PolicyWithPopArt, PopArtValueHead, check_popart, make_popart_head
from .heads.selected_heads import check_heads, make_heads
from .network import Network, with_bonus_weight
from .network_settings import NetworkSettings, PolicyValueNetworkSettings, PopArtSettings
from .normalization import RunningNormalizer, WithoutPart
from .stochastic_layers import NoisyLayers
from .torsos.dense import Layers
from .torsos.torso_factory import Torso, check_torso, make_torso


def policy_value_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    lstm_size: int = 256,
    core_options: Mapping[str, Any] = MappingProxyType({}),
    layer_norm: bool = False,
    previous_inputs: bool = False,
    normalize_observations: bool = False,
    head_sizes: Sequence[int] = (),
    initial_log_std: float = 0.0,
    std_from_features: bool = False,
    autoregressive: bool = False,
    shared: bool = True,
    head: str | None = None,
    head_options: Mapping[str, Any] = MappingProxyType({}),
    critic_state: str | None = None,
    popart: PopArtSettings = PopArtSettings(),  # noqa: B008
    heads_by: str | None = None,
    **of_torso: Any,
) -> Network:
    """Builds a network for policy and value, including all variables; `action_policy.action_policy` acts with it.

    It outputs `heads.PolicyValue` for one discrete action, `heads.GaussianValue` for one array of numbers, and
    `composed_heads.ComposedValue` or `composed_heads.AutoregressiveValue` for actions of several parts.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: see `make_core`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of all MLPs.
      lstm_size: see `make_core`.
      core_options: see `make_core`.
      layer_norm: whether hidden layers are normalized, see `dense.Layers`.
      previous_inputs: whether the core also takes the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      head_sizes: sizes of separate hidden layers for policy and value, after the core.
      initial_log_std: initial logarithm of the standard deviation of a Gaussian policy.
      std_from_features: whether that standard deviation depends on the observation.
      autoregressive: whether each part of an action of several parts sees the parts before it.
      shared: whether policy and value share torso and core.
      head: `package.module:factory` of another head, which takes the spec and `head_options`.
      head_options: options of that head.
      critic_state: key of a part of the observation that only the value sees, with `shared` false; None for none.
      popart: see `PopArtSettings`.
      heads_by: key of a part of the observation that selects the head, see `selected_heads`; None for one head.
      **of_torso: further arguments of `make_torso`.

    Raises:
      CallboardError: if a name is unknown, or a part of the action is neither discrete nor floats with bounds.
    """
    action = ActionParts(spec.action)
    of_torso |= {"torso": torso, "hidden_sizes": hidden_sizes, "activation": activation, "layer_norm": layer_norm}
    parts = _Parts(spec, of_torso, (core, lstm_size, core_options))
    layers = Layers(head_sizes, activation, layer_norm)

    def make_head(with_value: bool) -> Any:
        if isinstance(spec.action, dm_specs.DiscreteArray):
            return PolicyValueHead(spec.action.num_values, layers, with_value=with_value)
        std: dict[str, Any] = {"initial_log_std": initial_log_std, "std_from_features": std_from_features}
        if is_single_box(spec):
            return GaussianValueHead(action.numbers, layers, with_value=with_value, **std)
        kind = AutoregressiveValueHead if autoregressive else ComposedValueHead
        return kind(action, layers, with_value, **std)

    def make_value_head() -> ValueHead | PopArtValueHead:
        return make_popart_head(spec, popart, layers) if popart.enabled else ValueHead(layers)

    normalizer = RunningNormalizer(spec.observation) if normalize_observations else None
    heads = functools.partial(make_heads, spec.observation, heads_by)
    if shared:
        if popart.enabled:
            both = PolicyWithPopArt(make_head(False), make_value_head())
        elif head is not None:
            both = heads(functools.partial(make_own_head, head, spec, head_options))
        else:
            both = heads(functools.partial(make_head, True))
        check = None
        if head is not None and not isinstance(both, AutoregressiveValueHead):
            check = functools.partial(check_outputs, head, _policy_shapes(action))
        before_head = parts.make(normalizer)
        return Network(spec, **before_head, head=both, previous_inputs=previous_inputs, check_outputs=check)
    if isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError("separate networks need a torso each: give a factory of torsos, not one layer")
    policy_head, value_head = heads(functools.partial(make_head, False)), heads(make_value_head)
    policy = Network(spec, **parts.make(normalizer, critic_state), head=policy_head, previous_inputs=previous_inputs)
    value = Network(spec, **parts.make(normalizer), head=value_head, previous_inputs=previous_inputs)
    return SeparateNetworks(policy, value)


def q_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (128, 128),
    activation: Any = "relu",
    lstm_size: int = 256,
    core_options: Mapping[str, Any] = MappingProxyType({}),
    layer_norm: bool = False,
    previous_inputs: bool = False,
    normalize_observations: bool = False,
    dueling: bool = True,
    stream_size: int = 0,
    atoms: int | None = None,
    head: str | None = None,
    head_options: Mapping[str, Any] = MappingProxyType({}),
    heads_by: str | None = None,
    fractions: int | None = None,
    noisy_sigma: float | None = None,
    takes_bonus_weight: bool = False,
    **of_torso: Any,
) -> Network:
    """Builds a network for discrete actions that outputs action values `[..., A]`, including all variables.

    For actions of several choices it outputs the values of each choice, `[..., K, M]`, as `BranchingQHead`.

    Args:
      spec: the environment's spec, with observations as the network takes them (frames stacked).
      torso: see `make_torso`.
      core: see `make_core`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of that MLP and of the head.
      lstm_size: see `make_core`.
      core_options: see `make_core`.
      layer_norm: whether hidden layers are normalized, see `dense.Layers`.
      previous_inputs: whether the core also takes the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      dueling: whether to use `heads.DuelingQHead` instead of `heads.QHead`.
      stream_size: units of the hidden layer in each stream of the head; 0 for none.
      atoms: numbers M of a distribution for each action, so that outputs are `[..., A, M]`; None for values alone.
      head: `package.module:factory` of another head, which takes the spec and `head_options`.
      head_options: options of that head.
      heads_by: key of a part of the observation that selects the head, see `selected_heads`; None for one head.
      fractions: number of sampled fractions, so that outputs are `implicit_quantiles.ImplicitQuantiles`; None for
        values, or for what `atoms` says.
      noisy_sigma: initial scale of the noise of noisy layers in the head (`stochastic_layers.NoisyDense`); None for
        layers without noise.
      takes_bonus_weight: whether the torso also sees the weight of the exploration bonus, see `Inputs`.
      **of_torso: further arguments of `make_torso`.

    Raises:
      CallboardError: if a name is unknown, or the action is not discrete; or it has several parts, and values are
        distributions.
    """
    composed = not isinstance(spec.action, dm_specs.DiscreteArray)
    choices = ActionParts(spec.action)
    if choices.numbers:
        raise CallboardError(f"Q-learning needs discrete actions, not {specs.describe(spec.action)}")
    if composed and (atoms is not None or fractions is not None):
        raise CallboardError(f"distributions of values are for one choice, not {specs.describe(spec.action)}")
    of_torso |= {"torso": torso, "hidden_sizes": hidden_sizes, "activation": activation, "layer_norm": layer_norm}
    parts = _Parts(spec, of_torso, (core, lstm_size, core_options))
    normalizer = RunningNormalizer(spec.observation) if normalize_observations else None
    before_head = parts.make(normalizer, takes_bonus_weight=takes_bonus_weight)
    make_network = functools.partial(
        Network, spec, previous_inputs=previous_inputs, takes_bonus_weight=takes_bonus_weight, **before_head
    )
    make_noisy = None if noisy_sigma is None else NoisyLayers(noisy_sigma)
    layers = Layers((stream_size,) if stream_size else (), activation, layer_norm, make_noisy)

    def make_head() -> Any:
        if head is not None:
            return make_own_head(head, spec, head_options)
        actions = int(choices.sizes.sum())
        made: Any
        if composed:
            made = BranchingQHead(choices, layers, dueling)
        elif atoms is not None:
            made = DistributionalQHead(actions, atoms, layers, dueling)
        else:
            made = (DuelingQHead if dueling else QHead)(actions, layers)
        return made if fractions is None else ImplicitQuantileHead(fractions, made)

    heads = make_heads(spec.observation, heads_by, make_head)
    if head is None:
        return make_network(head=heads)
    values = (len(choices.sizes), int(choices.sizes.max())) if composed else (int(choices.sizes[0]),)
    numbers = () if atoms is None else (atoms,)
    shapes = {"": (*values, *numbers)} if fractions is None else {"values": (*values, fractions)}
    return make_network(head=heads, check_outputs=functools.partial(check_outputs, head, shapes))


def check_network(spec: specs.EnvironmentSpec, settings: NetworkSettings, takes_bonus_weight: bool = False) -> None:
    """Checks that a network fits an environment's observations, without building it.

    Args:
      spec: the environment's spec, with single frames, not stacked.
      settings: those of the network.
      takes_bonus_weight: see `q_network`.

    Raises:
      CallboardError: as in `check_torso`; the factory of a core or head does not exist or take its options; or the
        observation has no part for the critic alone or for PopArt's task.
    """
    seen = _with_bonus_weight(spec) if takes_bonus_weight else spec
    check_torso(seen, settings.torso, settings.filters, settings.torsos, settings.torso_options)
    check_own_parts(spec, settings)
    if isinstance(settings, PolicyValueNetworkSettings):
        check_critic_state(spec.observation, settings.critic_state)
        check_popart(spec.observation, settings.popart)
    check_heads(spec.observation, getattr(settings, "heads_by", None))


def _with_bonus_weight(spec: specs.EnvironmentSpec) -> specs.EnvironmentSpec:
    """Returns the spec that the torso of a network sees which takes the weight of an exploration bonus."""
    weight = dm_specs.BoundedArray((), np.float32, 0, np.inf)
    return spec._replace(observation=with_bonus_weight(spec.observation, weight), encoding=None)


def _policy_shapes(action: ActionParts) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of what a head for policy and value outputs, without the batch axis."""
    shapes: dict[str, tuple[int, ...]] = {"value": ()}
    if len(action.sizes):
        shapes["logits"] = (int(action.sizes.sum()),)
    if action.numbers:
        shapes |= {"mean": (action.numbers,), "log_std": (action.numbers,)}
    return shapes


class _Parts(NamedTuple):
    """Settings of the parts of a network before its head."""

    spec: specs.EnvironmentSpec
    torso: Mapping[str, Any]
    """Arguments of `make_torso`."""
    core: tuple[Any, ...]
    """Arguments of `make_core`."""

    def make(
        self, normalizer: RunningNormalizer | None, unseen: str | None = None, takes_bonus_weight: bool = False
    ) -> dict[str, Any]:
        """Makes the parts of a network before its head, as arguments of `Network`.

        Args:
          normalizer: normalizes observations; None leaves them unchanged.
          unseen: key of a part of the observation that they do not see; None for none.
          takes_bonus_weight: whether they see the weight of the exploration bonus.
        """
        spec, of_torso = self.spec, dict(self.torso)
        seen = normalizer if unseen is None else WithoutPart(spec.observation, unseen, normalizer)
        if normalizer is not None:
            spec = spec._replace(observation=RunningNormalizer.normalized_spec(spec.observation))
        if unseen is not None:
            spec = specs.without_part(spec, unseen)
            torsos = of_torso.get("torsos", {})
            of_torso["torsos"] = {name: torso for name, torso in torsos.items() if name.split("/")[0] != unseen}
        if takes_bonus_weight:
            spec = _with_bonus_weight(spec)
        return {"normalizer": seen, "torso": make_torso(spec, **of_torso), "core": make_core(*self.core)}
