"""Settings of agents whose policies scale actions to bounds."""

import dataclasses
from typing import Any

import numpy as np
import tree
from dm_env import specs as dm_specs

from ...errors import CallboardError
from ...settings.setting_types import PositiveFloat
from ...specs import EnvironmentSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedActionSettings:
    """How an environment's actions get finite bounds, which agents' settings extend.

    Attributes:
      action_limit: bound, in both directions, of numbers of an action that the environment leaves unbounded; None
        refuses such environments.
    """

    action_limit: PositiveFloat | None = None

    def limited(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec of an environment with `action_limit` in place of infinite bounds of its action.

        Raises:
          CallboardError: a finite bound lies beyond the limit.
        """
        limit = self.action_limit
        if limit is None:
            return spec

        def bounded(leaf: Any) -> Any:
            if not isinstance(leaf, dm_specs.BoundedArray) or leaf.dtype.kind != "f":
                return leaf
            low = np.where(np.isneginf(leaf.minimum), -limit, leaf.minimum).astype(leaf.dtype)
            high = np.where(np.isposinf(leaf.maximum), limit, leaf.maximum).astype(leaf.dtype)
            if (low > high).any():
                raise CallboardError(
                    f"agent.action_limit {limit:g} lies outside of the finite bounds of the environment's action: make "
                    "it larger"
                )
            return dm_specs.BoundedArray(leaf.shape, leaf.dtype, low, high, leaf.name)

        return spec._replace(action=tree.map_structure(bounded, spec.action))
