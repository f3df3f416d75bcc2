"""Settings that may change while an agent learns: its copy has variables in place of those numbers."""

import copy
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..nested_settings import declared_fields
from .agent import Agent


class LiveSettings:
    """A copy of an agent whose `live` settings are variables.

    The losses and learning rates of a learner that the copy makes follow `change`.  The variables are not part of
    checkpoints, so that a resumed run begins with the settings it is given.

    Args:
      agent: the agent.  The variables are created in the current strategy's scope.
    """

    def __init__(self, agent: Agent):
        self._variables = {
            name: tf.Variable(declared_fields(agent)[name].default, trainable=False, dtype=tf.float32, name=name)
            for name in type(agent).live
        }
        self.agent: Any = agent
        for name, variable in self._variables.items():
            self.agent = _with(self.agent, name.split("."), variable)

    def change(self, settings: Mapping[str, float]) -> None:
        """Assigns other values, by names such as `optimizer.learning_rate`."""
        for name, value in settings.items():
            self._variables[name].assign(value)


def _with(settings: Any, path: list[str], value: Any) -> Any:
    """Returns a copy of nested dataclasses with another value, of any type, which is not checked."""
    name, *rest = path
    changed = copy.copy(settings)
    object.__setattr__(changed, name, _with(getattr(settings, name), rest, value) if rest else value)
    return changed
