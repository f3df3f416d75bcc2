"""Commands that a node has received with the answers to its reports, and their results."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from ....errors import one_line
from .messages import Command, Reply
from .node_health import thread_stacks

_AT_ONCE: dict[str, Callable[..., Any]] = {"stacks": thread_stacks}
"""Commands that the reporting thread executes, so that a node answers them whose main loop hangs."""


class CommandQueue:
    """Keeps commands from their arrival, in the reporting thread, until the node's main loop executes them.

    A command arrives with every answer until its result was reported; it is executed once in each incarnation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._replies: list[Reply] = []
        self.pending: list[Command] = []
        """Commands that were not executed yet, the oldest first."""

    def receive(self, commands: Sequence[Command]) -> bool:
        """Takes the commands of an answer; executes at once those that do not need the main loop.

        Returns:
          Whether there are results of commands that were executed at once.
        """
        with self._lock:
            new = [command for command in commands if command.id not in self._known]
            self._known = {command.id for command in commands}
            self.pending.extend(command for command in new if command.method not in _AT_ONCE)
        replies = [_execute(command, _AT_ONCE.__getitem__) for command in new if command.method in _AT_ONCE]
        with self._lock:
            self._replies += replies
        return bool(replies)

    def execute(self, method: Callable[[str], Callable[..., Any]]) -> None:
        """Executes the pending commands.

        Args:
          method: returns the function that executes commands of a name.
        """
        with self._lock:
            commands, self.pending = self.pending, []
        replies = [_execute(command, method) for command in commands]
        with self._lock:
            self._replies += replies

    def take_replies(self) -> list[Reply]:
        """Returns the results since the last call."""
        with self._lock:
            replies, self._replies = self._replies, []
        return replies


def _execute(command: Command, method: Callable[[str], Callable[..., Any]]) -> Reply:
    try:
        positional, named = cloudpickle.loads(command.arguments)
        return Reply(command.id, "", cloudpickle.dumps(method(command.method)(*positional, **named)))
    except Exception as error:  # A user's function may raise anything.
        logging.info("%s failed", command.method, exc_info=error)
        return Reply(command.id, one_line(error), b"")
