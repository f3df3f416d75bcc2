"""Tasks of single environments: what each of them is set to at its next reset."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import CallboardError, anything_raised, message_of, one_line
from ...settings.setting_types import shown

Task = Any
"""A value that says how hard, or which variant of itself, an environment is; None for the environment's own."""


class Tasks:
    """The task of a batch, which each environment takes at its next reset.

    Args:
      batch_size: the number of environments.
    """

    def __init__(self, batch_size: int):
        self.task: Task = None
        self._due = [False] * batch_size

    def set(self, task: Task) -> None:
        """Sets the task that environments take from their next reset on."""
        self.task = task
        self._due = [True] * len(self._due)

    def pass_on(self, index: int, set_task: Callable[[Task], Any]) -> None:
        """Calls an environment's own method with the task, if the environment has not had it yet; before a reset."""
        if self._due[index]:
            set_task(self.task)
            self._due[index] = False


def reset_options(name: str, task: Task) -> dict[str, Any] | None:
    """Returns the options of a Gymnasium environment's `reset` that stand for a task.

    Args:
      name: name of the environment, for messages.
      task: the task.

    Raises:
      CallboardError: the task is not a mapping.
    """
    if task is None:
        return None
    if not isinstance(task, Mapping):
        raise CallboardError(
            f"{name} has no method 'set_task', so a task is a mapping of options for its 'reset', not {task!r}: give "
            "it that method, or write the task as {name: value}"
        )
    return dict(task)


def no_task(name: str, fix: str) -> CallboardError:
    """Returns the error for an environment that cannot be set to a task."""
    return CallboardError(f"{name} cannot be set to a task: {fix}")


@contextlib.contextmanager
def task_errors(name: str, task: Task) -> Iterator[None]:
    """Converts the error of an environment that does not take a task.

    Raises:
      CallboardError: names the environment, the task and the error.
    """
    try:
        yield
    except CallboardError:
        raise
    except anything_raised() as error:
        raise CallboardError(f"environment {name!r} does not take the task {shown(task)}: {one_line(error)}") from error


def check_options_error(name: str, error: TypeError) -> None:
    """Checks whether `reset` has raised an error because it has no argument `options`.

    Raises:
      CallboardError: that is so.
    """
    if "unexpected keyword argument 'options'" in message_of(error):
        raise no_task(name, "give it a method 'set_task', or let 'reset' take options=None") from error
