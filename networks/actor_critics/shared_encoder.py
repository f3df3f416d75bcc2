"""Networks of DrQ: a convolutional encoder that policy and critics share, and that the critics' gradient alone trains.

Yarats, Kostrikov and Fergus 2021, "Image augmentation is all you need", https://arxiv.org/abs/2004.13649, appendix B.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from dm_env import specs as dm_specs

from ... import specs
from ...action_masks import has_mask, visible_spec
from ...data import Nest
from ..actions.action_bounds import ActionBounds
from ..distributions import Categorical, SquashedGaussian
from ..heads.heads import SquashedGaussianHead
from ..heads.own_heads import NO_OPTIONS
from ..network import Network
from ..network_settings import CriticSettings
from ..precision import Precision, with_precision
from ..recurrent import FeedForwardCore
from ..torsos.dense import LINEAR
from ..torsos.torso_factory import Torso
from ..torsos.torsos import ConvEncoder, MaskHidingTorso, MLPTorso, ObservationTorso
from .actor_critic import ActorCritic, ActorCriticParts, CategoricalHead, Critics, DiscreteCritics

FILTERS = ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1))
"""The paper's convolutions: channels, kernel size and stride."""
_FEATURES = 50
_LOG_STD_BOUNDS = (-10.0, 2.0)


class EncoderTrunk(tf.Module):
    """A torso: an encoder, and a layer of its own that makes few normalized features of its outputs.

    Args:
      encoder: maps an observation nest `[N, ...]` to `[N, F]`.
      features: units of the layer.
      trains_encoder: whether gradients flow to the encoder, and its variables are among those to train.
    """

    def __init__(self, encoder: tf.keras.layers.Layer, features: int, trains_encoder: bool):
        super().__init__()
        self._encoder = encoder
        self._trains_encoder = trains_encoder
        self._layers = [
            tf.keras.layers.Dense(features, kernel_initializer=tf.keras.initializers.Orthogonal(), name="dense"),
            tf.keras.layers.LayerNormalization(epsilon=1e-5, name="norm"),
        ]

    def __call__(self, observation: Nest, training: bool = False) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` to features `[N, features]` in [-1, 1]."""
        hidden = self._encoder(observation)
        if not self._trains_encoder:
            hidden = tf.stop_gradient(hidden)
        for layer in self._layers:
            hidden = layer(hidden)
        return tf.tanh(hidden)

    @property
    def losses(self) -> Sequence[tf.Tensor]:
        return ()

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        own = [variable for layer in self._layers for variable in layer.trainable_variables]
        return (*(self._encoder.trainable_variables if self._trains_encoder else ()), *own)


def shared_encoder_networks(
    spec: specs.EnvironmentSpec,
    torso: str = "auto",
    hidden_sizes: Sequence[int] = (1024, 1024),
    temperature: float = 0.1,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    image_activation: Any = None,
    image_initializer: str | None = None,
    torsos: Mapping[str, Torso] = NO_OPTIONS,
    critics: CriticSettings = CriticSettings(),  # noqa: B008
    **of_parts: Any,
) -> ActorCritic:
    """Builds the networks of DrQ, including all variables, for actions as those of SAC.

    Args:
      spec: the environment's spec, with observations as the networks take them (frames stacked).
      torso: `auto` and `conv` for an encoder of convolutions; any other, see `torso_factory.make_torso`.
      hidden_sizes: hidden layer sizes of the policy and of each critic.
      temperature: initial value of alpha.
      filters: convolutions of the encoder; empty for the paper's, `FILTERS`.
      image_features: features that policy and critics each make of the encoder's outputs; None for 50.
      precision: what the encoder computes in, see `torso_factory.make_torso`.
      image_activation: activation of the convolutions; None for ReLU.
      image_initializer: name of the initializer of their kernels; None for orthogonal ones.
      torsos: torsos of parts of the observation, in place of the paper's convolutions.
      critics: see `CriticSettings`.
      **of_parts: further arguments of `ActorCriticParts`.
    """
    features = _FEATURES if image_features is None else image_features
    of_parts |= {"filters": filters, "precision": precision, "torso": torso, "torsos": torsos}
    of_parts |= {"image_activation": image_activation, "image_initializer": image_initializer}
    parts = ActorCriticParts(spec, hidden_sizes, **of_parts)
    encoders, layers, own = parts.encoders, parts.layers, parts.own

    def paper_encoder(seen: specs.EnvironmentSpec) -> tf.keras.layers.Layer:
        visible = visible_spec(seen).observation
        made: tf.keras.layers.Layer = ObservationTorso(
            visible, lambda: ConvEncoder(filters or FILTERS, image_activation or "relu", image_initializer), _vectors
        )
        made = made if precision == "float32" else with_precision(made, precision)
        return MaskHidingTorso(made) if has_mask(seen.observation) else made

    def encoder() -> tf.keras.layers.Layer:
        has_own_torsos = torso not in ("auto", "conv") or torsos
        return encoders.make() if has_own_torsos else encoders.normalized(paper_encoder)

    critic_encoder = encoder()
    discrete = isinstance(spec.action, dm_specs.DiscreteArray)
    bounds = None if discrete else ActionBounds(spec.action)
    size = spec.action.num_values if bounds is None else bounds.size

    def policy_head() -> tf.Module:
        if discrete:
            return CategoricalHead(size, layers)
        return SquashedGaussianHead(size, layers, _LOG_STD_BOUNDS)

    check = own.policy_check(
        {"logits": (size,)} if discrete else {"mean": (size,), "log_std": (size,)},
        Categorical if discrete else SquashedGaussian,
    )
    of_critics: dict[str, Any] = {**own.critic(spec), "critics": critics}
    kind: Any = functools.partial(DiscreteCritics if discrete else Critics, **of_critics)
    critic, target_critic = (
        kind(spec, size, EncoderTrunk(one, features, trains_encoder=True), layers=layers)
        for one in (critic_encoder, encoder())
    )
    trunk = EncoderTrunk(critic_encoder, features, trains_encoder=False)
    policy = Network(spec, trunk, FeedForwardCore(), own.policy(spec, policy_head), check_outputs=check)
    return ActorCritic(policy, critic, target_critic, bounds, temperature, encoders.normalizer)


def _vectors(observation: Any) -> tf.keras.layers.Layer:
    return MLPTorso(observation, LINEAR)
