"""Implicit quantile networks: quantiles of action values at sampled fractions.

Dabney et al. 2018, "Implicit quantile networks", https://arxiv.org/abs/1806.06923.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .. import stateless_random
from ..random_streams import Stream
from ..stochastic_layers import randomness

_COSINES = 64


class ImplicitQuantiles(NamedTuple):
    """Quantiles of the values of all actions."""

    values: Any
    """`[B, A, N]`."""
    fractions: Any
    """`[B, N]`, the fractions in [0, 1] at which they are (tau), the same for all actions."""


class ImplicitQuantileHead(tf.Module):
    """Quantiles of action values from features that are multiplied with an embedding of fractions (section 3.1).

    Fractions are sampled uniformly in the context `stochastic_layers.sampling`; outside of it they are the N midpoints
    (2 i + 1) / (2 N), whose mean value varies less.
    """

    takes_legal = True

    def __init__(self, fractions: int, head: Any, name: str | None = None) -> None:
        """Creates a head, whose embedding is built by its first call.

        Args:
          fractions: N, number of fractions.
          head: maps features `[N, F]` and legal actions, if it `takes_legal`, to values `[N, A]`.
          name: name of the module.
        """
        super().__init__(name)
        self._fractions = fractions
        self._embedding: Any = None
        self._head = head

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> ImplicitQuantiles:
        """Maps features `[B, F]` and which actions are legal, bool `[B, A]`, to quantiles."""
        number = self._fractions
        if self._embedding is None:
            self._embedding = tf.keras.layers.Dense(features.shape[-1], activation="relu", name="embedding")
        fractions = self._sampled(tf.shape(features)[0], features.dtype)
        # Equation (4): cosines of pi i tau for i = 0 .. n - 1.
        angles = math.pi * tf.range(_COSINES, dtype=features.dtype) * fractions[..., tf.newaxis]
        embedding = self._embedding(tf.reshape(tf.cos(angles), (-1, _COSINES)))
        rows = tf.repeat(features, number, axis=0) * embedding
        if not getattr(self._head, "takes_legal", False):
            values = self._head(rows)
        else:
            values = self._head(rows, None if legal is None else tf.repeat(legal, number, axis=0))
        values = tf.reshape(values, (-1, number, values.shape[-1]))
        return ImplicitQuantiles(tf.transpose(values, (0, 2, 1)), fractions)

    def _sampled(self, batch: Any, dtype: Any) -> tf.Tensor:
        context = randomness()
        if context is None:
            midpoints = (np.arange(self._fractions) + 0.5) / self._fractions
            return tf.broadcast_to(tf.cast(midpoints, dtype), (batch, self._fractions))
        shape = (self._fractions,)
        return stateless_random.uniform(context.seed, Stream.QUANTILE_FRACTION, context.index, shape, dtype)
