"""Numbers that are not finite are found where they arise, and named as what they are.

NaN and infinity spread: from a reward to the loss, from there to every weight, and from the weights to the actions,
which the environment then refuses.  Each check stands where its numbers are in this process's memory anyway, so that
none waits for a device.
"""

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..data import CallboardError, Nest, Timestep, Update

_UPDATES = 1000

ADVICE = "lower the learning rate, and check that rewards and observations are not too large"


class NotFiniteError(CallboardError):
    """A number is NaN or infinite.  The message says which, and not yet what to do."""

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self._step = step

    def advised(self, agent: str, step: int, kept: str = "") -> CallboardError:
        """The error that a user should read.

        Args:
          agent: its name.
          step: the newest learner step.
          kept: what is kept of the run.
        """
        step = step if self._step is None else self._step
        return CallboardError(f"{self} at learner step {step:,} (agent {agent}): {ADVICE}" + (kept and f"; {kept}"))


class LossCheck:
    """Looks at the losses of updates, some time after these were started.

    An update that was not finite leaves weights that are not, and losses that are not: the newest update tells of all
    before it, and only where it is not finite they are gone through for the first one.
    """

    def __init__(self) -> None:
        self._updates: collections.deque[tuple[int, Mapping[str, Any]]] = collections.deque(maxlen=_UPDATES)

    def add(self, step: int, update: Update) -> None:
        """Takes an update; `step` is the learner step that it ended with.  Does not wait for it to be computed."""
        self._updates.append((step, {name: update.metrics[name] for name in update.finite}))

    def check(self) -> None:
        """Waits for the newest update.

        Raises:
          NotFiniteError: it, or one before it, has a loss or gradient that is not finite.
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
    """Looks at weights.

    Raises:
      NotFiniteError: names the first that is not finite.
    """
    for name, value in zip(names, values, strict=True):
        if not all_finite(value):
            raise NotFiniteError(f"the weight {name} is {_kind(value)}")


def check_saved_weights(prefix: str) -> None:
    """Looks at all that a `tf.train.Checkpoint` has written.

    Raises:
      NotFiniteError: names the first variable that is not finite.
    """
    reader = tf.train.load_checkpoint(prefix)
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating:
            check_weights([name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")], [reader.get_tensor(name)])


def check_policy(action: Nest, extras: Nest, slots: np.ndarray) -> None:
    """Looks at what a policy gave, before an environment is given its actions.

    Args:
      action: arrays `[B, ...]`.
      extras: arrays `[B, ...]`, in named tuples or dictionaries that name them.
      slots: integers `[B]`, the index over the whole run of each environment.

    Raises:
      CallboardError: names what is not finite: the policy is to blame, and not the environment.
    """
    if _leaves_finite(action) and _leaves_finite(extras):
        return
    for path, leaf in tree.flatten_with_path({"action": action, "extras": extras}):
        if not all_finite(leaf):
            name = ".".join(map(str, path[1:] if path[0] == "extras" else path))
            slot = int(slots[_first_row(leaf)])
            raise CallboardError(
                f"the policy's output {name!r} is {_kind(leaf)} for the environment in slot {slot}: {ADVICE}"
            )


def check_finite(timestep: Timestep) -> None:
    """Looks at what environments showed.

    Raises:
      CallboardError: an observation, a reward or a discount is not finite.  The environment is to blame: the actions
        that it was given were.
    """
    if _leaves_finite(timestep.observation) and all_finite(timestep.reward) and all_finite(timestep.discount):
        return
    shown = {"discount": timestep.discount, "observation": timestep.observation, "reward": timestep.reward}
    for path, leaf in tree.flatten_with_path(shown):
        if not all_finite(leaf):
            raise CallboardError(
                f"the {'.'.join(map(str, path))} of environment {_first_row(leaf)} in the batch is {_kind(leaf)} as "
                f"{leaf.dtype}: fix the environment, since training on it would spoil the weights"
            )


def all_finite(array: np.ndarray) -> bool:
    """Whether an array has no NaN and no infinity; one that is not of floats has none."""
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _leaves_finite(nest: Nest) -> bool:
    if isinstance(nest, np.ndarray):
        return all_finite(nest)
    return all(all_finite(leaf) for leaf in tree.flatten(nest))


def _first_row(array: np.ndarray) -> int:
    return int(np.argwhere(~np.isfinite(array))[0][0])


def _kind(values: Any) -> str:
    return "NaN" if np.isnan(values).any() else "infinite"
