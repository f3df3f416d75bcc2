"""Conversion between an environment's bounded continuous actions and unit actions in [-1, 1]^D."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from ... import specs
from ...errors import CallboardError


class ActionBounds:
    """An affine map from [-1, 1]^D to an environment's action box, which may have any shape, and its inverse.

    A component whose bounds are equal is constant.
    """

    def __init__(self, spec: Any, unbounded: bool = False) -> None:
        """Creates the map for an action spec.

        Args:
          spec: `dm_env.specs.BoundedArray` of floats with finite bounds.
          unbounded: whether bounds may be infinite.  A component with an infinite bound is clipped but not scaled.

        Raises:
          CallboardError: if the spec is anything else.
        """
        if not isinstance(spec, dm_specs.BoundedArray) or not np.issubdtype(spec.dtype, np.floating):
            raise CallboardError(
                f"a policy of continuous actions needs one action of floats with bounds, not {specs.describe(spec)}"
            )
        low, high = (np.broadcast_to(bound, spec.shape).astype(np.float64) for bound in (spec.minimum, spec.maximum))
        finite = np.isfinite(low) & np.isfinite(high)
        if not (unbounded or finite.all()):
            raise CallboardError(
                "a policy of continuous actions needs finite bounds of the action; clip or rescale it first"
            )
        if (low > high).any():
            raise CallboardError("the action's lower bound is above its upper bound")
        self.shape = tuple(spec.shape)
        """Shape of one action."""
        self.size = math.prod(self.shape)
        """D, the number of components of an action."""
        self._dtype = np.dtype(spec.dtype)
        self._low, self._high = low, high
        # Halve before adding: the sum of two bounds near the largest float would overflow.
        half_low, half_high = np.where(finite, low, -1.0) / 2, np.where(finite, high, 1.0) / 2
        self._center, self._half = half_low + half_high, half_high - half_low
        self._limit = np.where(finite, 1.0, np.inf)

    def to_environment(self, unit: Any) -> tf.Tensor:
        """Maps unit actions `[..., D]` to actions `[..., *shape]` in the environment's dtype and within its bounds."""
        unit = tf.convert_to_tensor(unit)
        shaped = tf.reshape(unit, tf.concat([tf.shape(unit)[:-1], self.shape], axis=0))
        shaped = tf.ensure_shape(shaped, (*unit.shape[:-1], *self.shape))
        action = tf.cast(self._center + self._half * tf.cast(shaped, tf.float64), self._dtype)
        return tf.clip_by_value(action, self._low.astype(self._dtype), self._high.astype(self._dtype))

    def from_environment(self, action: Any, dtype: Any = None) -> tf.Tensor:
        """Maps actions `[..., *shape]` to unit actions `[..., D]`, clipped to [-1, 1] where bounds are finite.

        Args:
          action: actions in the environment's units.
          dtype: dtype of the result; None for Keras's `floatx`.
        """
        action = tf.cast(action, tf.float64)
        half = np.where(self._half > 0, self._half, 1.0)
        unit = tf.clip_by_value((action - self._center) / half, -self._limit, self._limit)
        leading = len(action.shape) - len(self.shape)
        flat = tf.reshape(unit, tf.concat([tf.shape(unit)[:leading], [self.size]], axis=0))
        flat = tf.ensure_shape(flat, (*unit.shape[:leading], self.size))
        return tf.cast(flat, dtype or tf.keras.backend.floatx())
