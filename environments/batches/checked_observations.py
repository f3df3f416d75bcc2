"""Checks of what environments show at every timestep: action masks, choices, and bounds."""

import logging
from collections.abc import Callable

import tree
from dm_env import specs

from ...action_masks import check_mask, has_mask, illegal_rows
from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import MultiDiscreteArray
from .batched import BatchedEnvironment, EnvironmentWrapper
from .observation_bounds import ObservationBounds
from .observation_values import as_choices

_logger = logging.getLogger(__name__)


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
        for row in illegal_rows(self.spec, timestep.observation) if self._has_mask else ():
            # At the end of an episode there may be nothing left to do.
            if not timestep.last[row]:
                raise CallboardError(
                    f"environment {self._name!r} has an action mask that allows nothing, in environment {row} of the "
                    "batch: let it end the episode, or allow an action that does nothing"
                )
        return timestep
