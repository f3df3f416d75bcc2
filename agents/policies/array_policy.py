"""Policies of actors: small networks are computed with NumPy, all others with TensorFlow."""

import logging
from collections.abc import Sequence

import numpy as np
import tree

from ...data import Layout, Timestep
from ..agent import Policy
from .acting import CompiledPolicy
from .array_function import ArrayFunction, UnknownOperation

_TOLERANCE = 1e-3


class ArrayPolicy(CompiledPolicy):
    """A compiled policy that computes its actions with NumPy where it can: same arguments, same samples.

    It can if the policy has no state and `array_function` knows all operations of its graph.  Actions and extras are
    those of TensorFlow but for their last bits; the first ones are compared.
    """

    def __init__(self, policy: Policy, layout: Layout, slots: np.ndarray, seed: int, incarnation: int = 0):
        super().__init__(policy, layout, slots, seed, incarnation)
        self._arrays: ArrayFunction | None = None
        self._compared = self._is_current = False
        variables = getattr(policy, "variables", None)
        if self._act.traced is None or variables is None or tree.flatten(self.state):
            return
        try:
            self._arrays = ArrayFunction(self._act.traced, variables)
        except UnknownOperation as error:
            logging.debug("actions are computed with TensorFlow: %s", error)

    @property
    def computes_arrays(self) -> bool:
        """Whether NumPy computes the actions."""
        return self._arrays is not None and self._is_current

    @property
    def reads_variables(self) -> bool:
        return not (self.computes_arrays and self._compared)

    def use(self, values: Sequence[np.ndarray]) -> None:
        if self._arrays is not None:
            self._arrays.use(values)
            self._is_current = True

    def forget(self) -> None:
        # Until then, TensorFlow computes the actions.
        self._is_current = False

    def _leaves(self, timestep: Timestep) -> list[np.ndarray]:
        if self._arrays is None or not self._is_current:
            return super()._leaves(timestep)
        leaves = self._arrays(tree.flatten(timestep), self._seed, self._timesteps)
        if not self._compared:
            self._compared = True
            compiled = super()._leaves(timestep)
            if not all(map(_same, leaves, compiled)):
                logging.warning("actions are computed with TensorFlow, since NumPy gives others")
                self._arrays = None
                return compiled
        return leaves


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and np.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
