"""Checks that detect NaN and infinity where they first appear, and name the value that is not finite.

Non-finite values spread from a reward to the loss, from there to every weight, and from the weights to the actions,
which the environment then rejects.  Each check runs where its values are in host memory anyway, so no check waits for
a device.
"""

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ...data import Nest, Timestep, Update
from ...errors import CallboardError

_UPDATES = 1000
_SMALL = 4096

ADVICE = "lower the learning rate, and check that rewards and observations are not too large"


class NotFiniteError(CallboardError):
    """A value is NaN or infinite.  The message names the value but does not explain yet how to fix the cause."""

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self._step = step

    def advised(self, agent: str, step: int, kept: str = "") -> CallboardError:
        """Returns the error to show to the user, with the learner step and advice.

        Args:
          agent: the agent's name.
          step: the newest learner step, used if the error does not have a step itself.
          kept: which state of the run is kept, for the end of the message.
        """
        step = step if self._step is None else self._step
        return CallboardError(f"{self} at learner step {step:,} (agent {agent}): {ADVICE}" + (kept and f"; {kept}"))


class LossCheck:
    """Checks the losses of updates some time after the updates were started.

    A non-finite update makes the weights non-finite, and with them all later losses.  So only the newest update is
    checked, and if it is not finite, the earlier ones are searched for the first.
    """

    def __init__(self) -> None:
        self._updates: collections.deque[tuple[int, Mapping[str, Any]]] = collections.deque(maxlen=_UPDATES)

    def add(self, step: int, update: Update) -> None:
        """Adds an update that ended with learner step `step`, without waiting for it to be computed."""
        self._updates.append((step, {name: update.metrics[name] for name in update.finite}))

    def check(self) -> None:
        """Waits for the newest update and checks all updates added since the last check.

        Raises:
          NotFiniteError: the loss or gradient of an update is not finite.
        """
        if not self._updates:
            return
        updates, newest = list(self._updates), self._updates[-1]
        self._updates.clear()
        if _first_bad(newest[1]) is None:
            return
        for step, values in updates:
            bad = _first_bad(values)
            if bad is not None:
                raise NotFiniteError(f"the {bad.replace('_', ' ')} is {_kind(float(values[bad]))}", step)


def _first_bad(values: Mapping[str, Any]) -> str | None:
    return next((name for name, value in values.items() if not math.isfinite(value)), None)


def check_weights(names: Iterable[str], values: Iterable[np.ndarray]) -> None:
    """Checks that weights are finite.

    Raises:
      NotFiniteError: a weight is not finite; the message names the first such weight.
    """
    for name, value in zip(names, values, strict=True):
        if not all_finite(value):
            raise NotFiniteError(f"the weight {name} is {_kind(value)}")


def check_saved_weights(prefix: str) -> None:
    """Checks that all variables in a file written by `tf.train.Checkpoint` are finite.

    Raises:
      NotFiniteError: a variable is not finite; the message names the first such variable.
    """
    reader = tf.train.load_checkpoint(prefix)
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating:
            check_weights([name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")], [reader.get_tensor(name)])


def check_policy(action: Nest, extras: Nest, slots: np.ndarray) -> None:
    """Checks that a policy's outputs are finite, before the environments receive its actions.

    Args:
      action: arrays `[B, ...]`.
      extras: arrays `[B, ...]`, in named tuples or dictionaries, whose names appear in the message.
      slots: integers `[B]`, the slot of each environment.

    Raises:
      CallboardError: an output is not finite; the message names it.  The policy is the cause, not the environment.
    """
    if all(map(all_finite, tree.flatten((action, extras)))):
        return
    for path, leaf in tree.flatten_with_path({"action": action, "extras": extras}):
        if not all_finite(leaf):
            name = ".".join(map(str, path[1:] if path[0] == "extras" else path))
            slot = int(slots[_first_row(leaf)])
            raise CallboardError(
                f"the policy's output {name!r} is {_kind(leaf)} for the environment in slot {slot}: {ADVICE}"
            )


def check_finite(timestep: Timestep) -> None:
    """Checks that a timestep is finite.

    Raises:
      CallboardError: an observation, a reward or a discount is not finite.  The environment is the cause, since the
        actions that it received were finite.
    """
    # One pass for two arrays: a product with NaN or infinity is not finite, whatever the other factor is.
    both = np.vdot(timestep.reward, timestep.discount)
    if math.isfinite(both) and _leaves_finite(timestep.observation):
        return
    shown = {"discount": timestep.discount, "observation": timestep.observation, "reward": timestep.reward}
    for path, leaf in tree.flatten_with_path(shown):
        if not all_finite(leaf):
            raise CallboardError(
                f"the {'.'.join(map(str, path))} of environment {_first_row(leaf)} in the batch is {_kind(leaf)} as "
                f"{leaf.dtype}: fix the environment, since training on it would spoil the weights"
            )


def all_finite(array: np.ndarray) -> bool:
    """Returns whether an array contains no NaN or infinity; always True for arrays that are not of floats."""
    if array.dtype.kind != "f":
        return True
    # The sum of squares of a small array takes less time, but is also infinite where finite numbers are too large.
    if array.size <= _SMALL and math.isfinite(np.vdot(array, array)):
        return True
    return bool(np.isfinite(array).all())


def _leaves_finite(nest: Nest) -> bool:
    if isinstance(nest, np.ndarray):
        return all_finite(nest)
    return all(all_finite(leaf) for leaf in tree.flatten(nest))


def _first_row(array: np.ndarray) -> int:
    return int(np.argwhere(~np.isfinite(array))[0][0])


def _kind(values: Any) -> str:
    return "NaN" if np.isnan(values).any() else "infinite"
