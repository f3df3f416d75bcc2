"""Settings that change while an agent learns: its copy has variables in place of those numbers and schedules."""

import copy
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...errors import CallboardError, unknown
from ...messages import foreign_names
from ...settings.nested_settings import declared_fields, with_values
from ...settings.setting_types import LIVE
from ..agent import Agent
from ..agent_names import agent_name
from ..schedules import Schedule, schedules_of


class LiveSettings:
    """A copy of an agent whose `live` settings are variables.

    The copy makes a learner whose losses and learning rates use the variables: `change` sets them, and `follow` those
    that are schedules.  Checkpoints do not contain the variables: a resumed run begins with its own settings.

    A schedule takes the place of linear decay: where `learning_rate` is one, the copy's `learning_rate_decay` is False,
    and so for every setting with a flag of such a name.  Where the flag is set, the copy has a variable in its place,
    the part of the run that is left: decay follows what ends the run, and not the number of learner steps.

    Args:
      agent: the agent.  The variables are created in the current strategy's scope.
      max_steps: environment steps of the run, for schedules without `steps`.
      max_learner_steps: learner steps of the run.
    """

    def __init__(self, agent: Agent, max_steps: int = 1, max_learner_steps: int | None = None):
        self._schedules = schedules_of(agent)
        self._lengths = {"environment_steps": max_steps, "learner_steps": max_learner_steps or 1}
        fields = declared_fields(agent)
        values = {name: fields[name].default for name in type(agent).live}
        values |= {name: self._value(schedule, 0, 0) for name, schedule in self._schedules.items()}
        self._variables = {
            name: tf.Variable(value, trainable=False, dtype=tf.float32, name=name) for name, value in values.items()
        }
        self._followed: dict[str, float] = {}
        self._left = tf.Variable(1.0, trainable=False, dtype=tf.float32, name="run_left")
        for variable in (*self._variables.values(), self._left):
            # A changed copy of the agent, such as `dataclasses.replace` makes in `make_learner`, takes it as it is.
            setattr(variable, LIVE, True)
        self._done = 0.0
        self.decays = False
        """Whether some setting decays to 0 over the run."""
        self.agent: Any = agent
        for name, variable in self._variables.items():
            self.agent = with_value(self.agent, name.split("."), variable)
            flag = fields.get(f"{name}_decay")
            if flag is not None and flag.default:
                decays = name not in self._schedules
                self.decays |= decays
                self.agent = with_value(self.agent, f"{name}_decay".split("."), self._left if decays else False)

    def follow(self, environment_steps: int, learner_steps: int, done: float = 0.0) -> None:
        """Assigns the values that schedules and decay have now; settings that were changed keep their values.

        Args:
          environment_steps: those of all actors so far.
          learner_steps: those so far.
          done: the part of the run that is done, for settings that decay to 0 at its end.
        """
        if self.decays and done != self._done:
            self._done = done
            self._left.assign(max(0.0, 1.0 - done), read_value=False)
        for name, schedule in self._schedules.items():
            value = self._value(schedule, environment_steps, learner_steps)
            if value != self._followed.get(name):
                self._followed[name] = value
                # In every learner step, where reading the value back would take a third of the time.
                self._variables[name].assign(value, read_value=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The values that schedules have now, by names such as `scheduled_learning_rate`."""
        return {scheduled_metric(name): value for name, value in self._followed.items()}

    def change(self, settings: Mapping[str, float]) -> None:
        """Assigns other values, by names such as `optimizer.learning_rate`; they replace schedules."""
        for name, value in settings.items():
            self._schedules.pop(name, None)
            self._followed.pop(name, None)
            self._variables[name].assign(value)

    def _value(self, schedule: Schedule, environment_steps: int, learner_steps: int) -> float:
        steps = environment_steps if schedule.by == "environment_steps" else learner_steps
        return schedule.at(steps, self._lengths[schedule.by])


def live_changes(agent: Agent, settings: Mapping[str, float]) -> dict[str, float]:
    """Returns changes of settings that are `live`, by their full names, checked.

    Args:
      agent: the agent.
      settings: new values by name; `learning_rate` stands for all learning rates.

    Raises:
      CallboardError: there is no such setting, it cannot change, or a value is out of range.
    """
    live = type(agent).live
    changes: dict[str, float] = {}
    for name, value in settings.items():
        named = [one for one in live if one == name or (name == "learning_rate" and one.endswith(f".{name}"))]
        if not named and name in declared_fields(agent):
            raise CallboardError(
                f"{name} cannot change while {agent_name(agent)} learns; what can is {', '.join(live) or 'nothing'}"
            )
        if not named:
            foreign = foreign_names.hint("setting", name, live)
            if foreign is not None:
                raise CallboardError(f"unknown setting {name!r}; {foreign}")
            raise unknown("setting", name, live)
        if not isinstance(value, numbers.Real):
            raise CallboardError(f"{name} must be a number, not {value!r}")
        changes |= {one: float(value) for one in named}
    with_values(agent, changes)  # Checks the ranges.
    return changes


def scheduled_metric(name: str) -> str:
    """Returns the name of the metric of a setting that is a schedule."""
    return f"scheduled_{re.sub(r'(optimizer|replay)[.]', '', name)}"


def with_value(settings: Any, path: Sequence[str], value: Any) -> Any:
    """Returns a copy of nested dataclasses with another value, of any type, which is not checked.

    Args:
      settings: a dataclass.
      path: names of the field, from the outermost on.
      value: may be a tensor or a variable in the place of a number.
    """
    name, *rest = path
    changed = copy.copy(settings)
    object.__setattr__(changed, name, with_value(getattr(settings, name), rest, value) if rest else value)
    return changed
