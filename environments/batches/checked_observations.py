"""Checks of what environments show at every timestep: action masks, choices, and bounds."""

import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs

from ...action_masks import check_mask, has_mask, illegal_rows
from ...data import Nest, Timestep, any_true
from ...errors import CallboardError
from ...specs import MultiDiscreteArray
from .batched import BatchedEnvironment, EnvironmentWrapper
from .observation_values import as_choices, place_text

_logger = logging.getLogger(__name__)
_EVERY = 32
_ALWAYS_FIRST = 64
_SMALL = 256
"""Arrays of up to so many elements are compared in every timestep, larger ones in the first and then in some."""
_ROUNDING = 1e-5


def with_checks(
    environment: BatchedEnvironment, name: str, warn: Callable[[str], object] = _logger.warning
) -> BatchedEnvironment:
    """Returns an environment whose observations are checked, as far as they can be wrong.

    Args:
      environment: the environment.
      name: the environment's name, for messages.
      warn: see `ObservationBounds`.

    Raises:
      CallboardError: the observations contain an action mask that does not fit the environment's actions.
    """
    checked = CheckedObservations(environment, name, warn)
    return checked if checked.is_needed else environment


class CheckedObservations(EnvironmentWrapper):
    """An environment whose observations are checked.

    At every timestep that is acted on, an action mask must leave an action.  Choices must be among their values, which
    adapters that have an encoding have checked already.  Values outside of bounds are reported, once per part.

    The arguments are those of `with_checks`.
    """

    def __init__(self, environment: BatchedEnvironment, name: str, warn: Callable[[str], object] = _logger.warning):
        super().__init__(environment)
        self._name = name
        observation = environment.spec.observation
        try:
            check_mask(environment.spec)
        except CallboardError as error:
            raise CallboardError(f"environment {name!r}: {error}") from error
        self._has_mask = has_mask(observation)
        self._bounds = ObservationBounds(observation, f"environment {name!r}", warn)
        self._choices = []
        if environment.spec.encoding is None:
            leaves = enumerate(tree.flatten_with_path(observation))
            self._choices = [
                (index, [str(key) for key in path], leaf.num_values)
                for index, (path, leaf) in leaves
                if isinstance(leaf, specs.DiscreteArray | MultiDiscreteArray)
            ]

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to check."""
        return bool(self._has_mask or self._choices or self._bounds.exist)

    def reset(self) -> Timestep:
        return self._checked(self._environment.reset())

    def step(self, actions: Nest) -> Timestep:
        return self._checked(self._environment.step(actions))

    def _checked(self, timestep: Timestep) -> Timestep:
        if self._choices:
            leaves = tree.flatten(timestep.observation)
            for index, path, num_values in self._choices:
                as_choices(leaves[index], num_values, None, path)
        self._bounds.look(timestep.observation)
        for row in self._illegal_rows(timestep.observation) if self._has_mask else ():
            # At the end of an episode there may be nothing left to do.
            if not timestep.last[row]:
                raise CallboardError(
                    f"environment {self._name!r} has an action mask that allows nothing, in environment {row} of the "
                    "batch: let it end the episode, or allow an action that does nothing"
                )
        return timestep

    def _illegal_rows(self, observation: Nest) -> np.ndarray:
        try:
            return illegal_rows(self.spec, observation)
        except CallboardError as error:
            raise CallboardError(f"environment {self._name!r}: {error}") from error


class _Bounded(NamedTuple):
    place: int
    path: tuple[Any, ...]
    spec: specs.BoundedArray
    low: np.ndarray
    high: np.ndarray
    """Bounds that leave room for rounding."""


class ObservationBounds:
    """Compares observations with the bounds of their spec, and warns once per part that exceeds them.

    Such values are kept: floats often exceed a bound a little, and what is seen is the value itself.  But a network
    that scales by the bounds sees other numbers than it should.  Indices outside of a choice, and values that the
    space's dtype cannot hold, are errors, see `observation_values`.

    Args:
      observation: nest of dm_env specs.
      what: what gives the observations, for the warnings, such as `environment 'CartPole-v1'`.
      warn: takes a warning, one line.
    """

    def __init__(self, observation: Nest, what: str, warn: Callable[[str], object] = _logger.warning):
        self._what = what
        self._warn = warn
        self._timesteps = 0
        self._parts = [
            part
            for index, (path, spec) in enumerate(tree.flatten_with_path(observation))
            if (part := _bounded(index, path, spec)) is not None
        ]

    @property
    def exist(self) -> bool:
        """Whether there are bounds that have not been exceeded yet."""
        return bool(self._parts)

    def look(self, observation: Nest) -> None:
        """Looks at observations, a nest of arrays `[B, ...]`."""
        if not self._parts:
            return
        self._timesteps += 1
        looks_at_all = self._timesteps <= _ALWAYS_FIRST or self._timesteps % _EVERY == 0
        leaves = tree.flatten(observation)
        for part in self._parts:
            array = leaves[part.place]
            if (looks_at_all or math.prod(part.spec.shape) <= _SMALL) and any_true(
                (array < part.low) | (array > part.high)
            ):
                self._report(part, array)
                # A new list, because this one is being iterated over.
                self._parts = [other for other in self._parts if other is not part]

    def _report(self, part: _Bounded, array: np.ndarray) -> None:
        outside = (array < part.low) | (array > part.high)
        place = tuple(np.argwhere(outside)[0])
        low, high = (
            np.broadcast_to(bound, array.shape[1:])[place[1:]] for bound in (part.spec.minimum, part.spec.maximum)
        )
        self._warn(
            f"{self._what} gives {array[place]:g} in its observation"
            f"{place_text([str(key) for key in part.path])}, outside of the bounds of its space, {low:g} to {high:g}: "
            "correct the bounds, which networks may scale by"
        )


def _bounded(index: int, path: tuple[Any, ...], spec: Any) -> _Bounded | None:
    """Returns the bounds of a part that can be exceeded; None if there are none."""
    if not isinstance(spec, specs.BoundedArray) or isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        return None
    low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
    if spec.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            slack = _ROUNDING * np.maximum(1.0, np.maximum(*(np.where(np.isfinite(b), abs(b), 0) for b in (low, high))))
            low, high = (low - slack).astype(spec.dtype), (high + slack).astype(spec.dtype)
        exists = np.isfinite(low).any() or np.isfinite(high).any()
    elif spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype)
        exists = (low > limits.min).any() or (high < limits.max).any()
    else:
        exists = False
    return _Bounded(index, path, spec, low, high) if exists else None
