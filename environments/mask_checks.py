"""Checks of the action masks that environments show."""

from ..action_masks import check_mask, illegal_rows
from ..data import Nest, Timestep
from ..errors import CallboardError
from .batched import BatchedEnvironment, EnvironmentWrapper


class MaskCheckedEnvironment(EnvironmentWrapper):
    """An environment whose action masks are checked: at every timestep that is acted on, an action must be left.

    Args:
      environment: the environment, whose observations contain an action mask.
      name: the environment's name, for messages.

    Raises:
      CallboardError: the mask does not fit the environment's actions.
    """

    def __init__(self, environment: BatchedEnvironment, name: str):
        super().__init__(environment)
        self._name = name
        try:
            check_mask(environment.spec)
        except CallboardError as error:
            raise CallboardError(f"environment {name!r}: {error}") from error

    def reset(self) -> Timestep:
        return self._checked(super().reset())

    def step(self, actions: Nest) -> Timestep:
        return self._checked(super().step(actions))

    def _checked(self, timestep: Timestep) -> Timestep:
        for row in illegal_rows(self.spec, timestep.observation):
            # At the end of an episode there may be nothing left to do.
            if not timestep.last[row]:
                raise CallboardError(
                    f"environment {self._name!r} has an action mask that allows nothing, in environment {row} of the "
                    "batch: let it end the episode, or allow an action that does nothing"
                )
        return timestep
