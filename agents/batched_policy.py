"""Acting for several actors at once: their batches in one forward pass."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..data import CallboardError, Layout, Nest, Timestep, rebuilt
from .acting import timestep_spec
from .agent import Policy
from .fast_function import CompiledFunction, as_arrays
from .finite_checks import check_policy


class Turn(NamedTuple):
    """What a policy needs to act for one actor.  Leaves are arrays `[B, ...]`."""

    timestep: Timestep
    state: Nest
    """The recurrent state that belongs to the timestep's observations."""
    slots: np.ndarray
    """int32 `[B]`, the global index of each environment."""
    seed: np.ndarray
    """int32 `[2]`."""


class Move(NamedTuple):
    """What a policy gives for one actor.  Leaves are arrays `[B, ...]`."""

    action: Nest
    extras: Nest
    state: Nest
    """That belongs to the next observations."""


class BatchedPolicy:
    """A policy as one `tf.function` over the batches of any number of actors, which are equally large.

    Args:
      policy: the policy.
      layout: names the environment's spec.

    Raises:
      CallboardError: the policy takes only batches of a known size, or one seed for all of them.
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
        except Exception as error:  # Whatever the policy's operations raise.
            reason = (str(error).strip().splitlines() or [""])[-1].strip()
            raise CallboardError(
                "central inference gives the policy batches of any size, with a row of seeds for each actor, and this "
                f"one cannot take them ({type(error).__name__}: {reason}): take --inference local, or see "
                "agents/agent.py"
            ) from error

    def initial_state(self, batch_size: int) -> Nest:
        """The recurrent state of one actor at the beginning, as arrays."""
        return as_arrays(self._policy.initial_state(batch_size))

    def __call__(self, turns: Sequence[Turn]) -> list[Move]:
        """The move of each turn, by one forward pass.

        Raises:
          CallboardError: an action, or what comes with it, is not finite.
        """
        turns = [turn._replace(seed=turn.seed[np.newaxis]) for turn in turns]
        if len(turns) == 1:
            merged = turns[0]
        else:
            columns = zip(*map(tree.flatten, turns), strict=True)
            merged = rebuilt(turns[0], map(np.concatenate, columns))
        outputs = Move(*as_arrays(self._act(*merged)))
        check_policy(outputs.action, outputs.extras, merged.slots)
        if len(turns) == 1:
            return [outputs]
        leaves = tree.flatten(outputs)
        size = len(turns[0].slots)
        parts = [slice(begin, begin + size) for begin in range(0, size * len(turns), size)]
        return [rebuilt(outputs, (leaf[part] for leaf in leaves)) for part in parts]


def _of_any_batch(leaf: Any) -> tf.TensorSpec:
    return tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype)
