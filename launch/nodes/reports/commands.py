"""Commands that a node has received with the answers to its reports, and their results."""

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from ....errors import anything_raised, one_line
from .large_contents import GIVE, KEEP, LOST, PART_BYTES, LargeContents
from .messages import Command, Reply
from .node_health import thread_stacks


class CommandQueue:
    """Keeps commands from their arrival, in the reporting thread, until the node's main loop executes them.

    A command arrives with every answer until its result was reported; it is executed once in each incarnation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._replies: list[Reply] = []
        self._contents = LargeContents()
        self._at_once: dict[str, Callable[..., Any]] = {
            "stacks": thread_stacks,
            KEEP: self._contents.keep,
            GIVE: self._contents.give,
        }
        """Commands that the reporting thread executes, so that a node answers them whose main loop hangs."""
        self.pending: list[Command] = []
        """Commands that were not executed yet, the oldest first."""

    def receive(self, commands: Sequence[Command]) -> bool:
        """Takes the commands of an answer; executes at once those that do not need the main loop.

        Returns:
          Whether there are results to report at once.
        """
        with self._lock:
            new = [command for command in commands if command.id not in self._known]
            self._known = {command.id for command in commands}
            self.pending.extend(command for command in new if command.method not in self._at_once)
        replies = [_reply(command, self._at_once.__getitem__) for command in new if command.method in self._at_once]
        with self._lock:
            self._replies += replies
            return bool(self._replies)

    def execute(self, method: Callable[[str], Callable[..., Any]]) -> None:
        """Executes the pending commands.

        Args:
          method: returns the function that executes commands of a name.
        """
        with self._lock:
            commands, self.pending = self.pending, []
        replies = [self._large(_reply(self._whole(command), method)) for command in commands]
        with self._lock:
            self._replies += replies

    def take_replies(self) -> list[Reply]:
        """Returns the results since the last call, or the first of them if all are too large for one report."""
        with self._lock:
            sizes = itertools.accumulate(len(reply.result) for reply in self._replies)
            count = max(1, sum(size <= 2 * PART_BYTES for size in sizes))
            replies, self._replies = self._replies[:count], self._replies[count:]
        return replies

    def _whole(self, command: Command) -> Command:
        if not command.parts:
            return command
        return command._replace(arguments=self._contents.take(command.id, command.parts))

    def _large(self, reply: Reply) -> Reply:
        parts = self._contents.offer(reply.id, reply.result)
        return reply._replace(result=b"", parts=parts) if parts else reply


def _reply(command: Command, method: Callable[[str], Callable[..., Any]]) -> Reply:
    if not command.arguments:
        return Reply(command.id, LOST, b"")
    try:
        positional, named = cloudpickle.loads(command.arguments)
        return Reply(command.id, "", cloudpickle.dumps(method(command.method)(*positional, **named)))
    except anything_raised() as error:  # A user's function may raise anything.
        logging.info("%s failed", command.method, exc_info=error)
        return Reply(command.id, one_line(error), b"")
