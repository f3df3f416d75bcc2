"""The torsos of a policy and of its critics: each network has one of its own, all with the same settings."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ... import specs
from ...errors import CallboardError
from ..normalization import RunningNormalizer
from .torso_factory import Torso, make_torso
from .torsos import NormalizingTorso


class Encoders:
    """Makes torsos, which pass vectors through unless these are normalized.

    Args:
      spec: the environment's spec.
      torso: see `torso_factory.make_torso`.
      activation: see `torso_factory.make_torso`.
      normalize_observations: whether all torsos contain one `normalization.RunningNormalizer`.
      normalizer: one that other networks contain, too, in place of that.
      **of_torso: further arguments of `torso_factory.make_torso`.

    Raises:
      CallboardError: the torso is a layer, which would be shared.
    """

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        torso: Torso = "auto",
        activation: Any = "relu",
        normalize_observations: bool = False,
        normalizer: RunningNormalizer | None = None,
        **of_torso: Any,
    ):
        if isinstance(torso, tf.keras.layers.Layer):
            raise CallboardError(
                "the policy and the critics need a torso each: give a factory of torsos, not one layer"
            )
        self.normalizer = RunningNormalizer(spec.observation) if normalize_observations else normalizer
        """The normalizer that the torsos contain; None if observations are not normalized."""
        self._spec = spec
        self._of_torso = {"torso": torso, "hidden_sizes": (), "activation": activation, **of_torso}

    def make(self) -> tf.keras.layers.Layer:
        """Makes a torso, with variables of its own."""
        return self.normalized(lambda spec: make_torso(spec, **self._of_torso))

    def normalized(self, make: Callable[[specs.EnvironmentSpec], tf.keras.layers.Layer]) -> tf.keras.layers.Layer:
        """Returns what `make` makes of the spec of observations, which it gets normalized if they are."""
        if self.normalizer is None:
            return make(self._spec)
        seen = self._spec._replace(observation=RunningNormalizer.normalized_spec(self._spec.observation))
        return NormalizingTorso(self.normalizer, make(seen))
