"""Continuous actions between an environment's bounds and the cube [-1, 1]^D that policies act in."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import CallboardError


class ActionBounds:
    """The affine map from [-1, 1]^D to the box of an environment's actions, of any shape, and its inverse.

    A component whose bounds are equal takes that one value.
    """

    def __init__(self, spec: Any, unbounded: bool = False) -> None:
        """The map for an action spec.

        Args:
          spec: `dm_env.specs.BoundedArray` of floats with finite bounds.
          unbounded: whether a bound may be infinite.  Such a component is not scaled, only kept within its bounds.

        Raises:
          CallboardError: if it is anything else.
        """
        if not isinstance(spec, dm_specs.BoundedArray) or not np.issubdtype(spec.dtype, np.floating):
            raise CallboardError(
                f"A Gaussian policy needs one action of floats with bounds, not {specs.describe(spec)}."
            )
        low, high = (np.broadcast_to(bound, spec.shape).astype(np.float64) for bound in (spec.minimum, spec.maximum))
        finite = np.isfinite(low) & np.isfinite(high)
        if not (unbounded or finite.all()):
            raise CallboardError("A Gaussian policy needs finite bounds of the action; clip or rescale it first.")
        if (low > high).any():
            raise CallboardError("The action's lower bound is above its upper bound.")
        self.shape = tuple(spec.shape)
        """Of one action."""
        self.size = math.prod(self.shape)
        """D, the number of components."""
        self._dtype = np.dtype(spec.dtype)
        self._low, self._high = low, high
        # Halved before they are added: bounds may be as large as numbers go.
        half_low, half_high = np.where(finite, low, -1.0) / 2, np.where(finite, high, 1.0) / 2
        self._center, self._half = half_low + half_high, half_high - half_low
        self._limit = np.where(finite, 1.0, np.inf)

    @property
    def log_volume(self) -> float:
        """log |d action / d unit|: subtract it from a log-density in the cube to get that in the environment's units.

        Over the components whose bounds differ.
        """
        return float(np.log(self._half[self._half > 0]).sum())

    def to_environment(self, unit: Any) -> tf.Tensor:
        """Unit actions `[..., D]` -> actions `[..., *shape]` in the environment's dtype, within its bounds."""
        unit = tf.convert_to_tensor(unit)
        shaped = tf.reshape(unit, tf.concat([tf.shape(unit)[:-1], self.shape], axis=0))
        shaped = tf.ensure_shape(shaped, (*unit.shape[:-1], *self.shape))
        action = tf.cast(self._center + self._half * tf.cast(shaped, tf.float64), self._dtype)
        return tf.clip_by_value(action, self._low.astype(self._dtype), self._high.astype(self._dtype))

    def from_environment(self, action: Any, dtype: Any = None) -> tf.Tensor:
        """Actions `[..., *shape]` -> unit actions `[..., D]`, within [-1, 1] where bounds are finite.

        Args:
          action: in the environment's units.
          dtype: of the result; None for Keras's `floatx`.
        """
        action = tf.cast(action, tf.float64)
        half = np.where(self._half > 0, self._half, 1.0)
        unit = tf.clip_by_value((action - self._center) / half, -self._limit, self._limit)
        leading = len(action.shape) - len(self.shape)
        flat = tf.reshape(unit, tf.concat([tf.shape(unit)[:leading], [self.size]], axis=0))
        flat = tf.ensure_shape(flat, (*unit.shape[:leading], self.size))
        return tf.cast(flat, dtype or tf.keras.backend.floatx())
