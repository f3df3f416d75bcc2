"""Acting for several actors with one forward pass over their concatenated batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ...data import Layout, Nest, Timestep, rebuilt
from ...errors import CallboardError, anything_raised, message_of
from ..agent import Policy
from ..fast_function import CompiledFunction, as_arrays
from ..variables.finite_checks import check_policy
from .acting import timestep_spec


class InferenceRequest(NamedTuple):
    """The policy's inputs for one actor.  Leaves are arrays `[B, ...]`."""

    timestep: Timestep
    state: Nest
    """The recurrent state before the timestep's observations."""
    slots: np.ndarray
    """int32 `[B]`, the slot of each environment."""
    seed: np.ndarray
    """int32 `[2]`."""


class InferenceResult(NamedTuple):
    """The policy's outputs for one actor.  Leaves are arrays `[B, ...]`."""

    action: Nest
    extras: Nest
    state: Nest
    """The recurrent state before the next observations."""


class BatchedPolicy:
    """A policy compiled for the concatenated batches of any number of actors, all of the same size.

    Args:
      policy: the policy.
      layout: contains the environment's spec.

    Raises:
      CallboardError: the policy supports only batches of a static size, or only a single seed.
    """

    def __init__(self, policy: Policy, layout: Layout):
        self._policy = policy
        try:
            self._act = CompiledFunction(
                policy,
                timestep_spec(layout, None),
                tree.map_structure(_of_any_batch, policy.initial_state(1)),
                tf.TensorSpec((None,), tf.int32),
                tf.TensorSpec((None, 2), tf.int32),
            )
        except anything_raised() as error:  # The policy's operations may raise anything.
            reason = (message_of(error).strip().splitlines() or [""])[-1].strip()
            raise CallboardError(
                "central inference gives the policy batches of any size, with a row of seeds for each actor, and this "
                f"one cannot take them ({type(error).__name__}: {reason}): take --inference local, or see "
                "agents/agent.py"
            ) from error

    def initial_state(self, batch_size: int) -> Nest:
        """Returns the initial recurrent state of one actor, as arrays."""
        return as_arrays(self._policy.initial_state(batch_size))

    def __call__(self, requests: Sequence[InferenceRequest]) -> list[InferenceResult]:
        """Returns the result of each request, computed in one forward pass.

        Raises:
          CallboardError: an action or an extra is not finite.
        """
        requests = [request._replace(seed=request.seed[np.newaxis]) for request in requests]
        if len(requests) == 1:
            merged = requests[0]
        else:
            columns = zip(*map(tree.flatten, requests), strict=True)
            merged = rebuilt(requests[0], map(np.concatenate, columns))
        outputs = InferenceResult(*as_arrays(self._act(*merged)))
        check_policy(outputs.action, outputs.extras, merged.slots)
        if len(requests) == 1:
            return [outputs]
        leaves = tree.flatten(outputs)
        size = len(requests[0].slots)
        parts = [slice(begin, begin + size) for begin in range(0, size * len(requests), size)]
        return [rebuilt(outputs, (leaf[part] for leaf in leaves)) for part in parts]


def _of_any_batch(leaf: Any) -> tf.TensorSpec:
    return tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype)
