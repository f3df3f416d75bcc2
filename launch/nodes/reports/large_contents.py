"""Arguments and results of commands that are too large for one message, such as weights: they come in parts.

A part fits into one report, or its answer, over any link on which reports arrive at all, so the time limit of a call
limits the progress of a transfer, and not its size.  Parts travel as commands of their own, which are acknowledged and
survive restarts of the coordinator as all commands do; a node that restarts has lost those that it had.
"""

import time
from collections.abc import Iterator

from ....errors import CallboardError
from ....runtime.deadlines import Clock

PART_BYTES = 1 << 17
"""Largest part, and largest content that is sent whole."""
KEEP, GIVE = "keep_part", "give_part"
"""Commands: to keep a part of the arguments of a later one, and to give a part of the result of an earlier one."""
LOST = "parts of what was sent are lost, because the node was restarted meanwhile; try again"
_KEPT_SECONDS = 60.0


def content_parts(content: bytes) -> list[bytes]:
    """Returns the parts in which a content is sent; none if it is sent whole."""
    if len(content) <= PART_BYTES:
        return []
    return [content[offset : offset + PART_BYTES] for offset in range(0, len(content), PART_BYTES)]


class LargeContents:
    """The parts of contents that a node receives or gives, until no caller has asked for them for a minute.

    Args:
      clock: returns seconds.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._parts: dict[str, dict[int, bytes]] = {}
        self._used: dict[str, float] = {}

    def keep(self, command_id: str, number: int, part: bytes) -> None:
        """Keeps a part of the arguments of a command."""
        self._use(command_id).setdefault(command_id, {})[number] = part

    def take(self, command_id: str, number: int) -> bytes:
        """Returns the arguments of a command, of so many parts; nothing if a part was lost."""
        parts = self._use(command_id).pop(command_id, {})
        return b"" if len(parts) < number else b"".join(parts[index] for index in range(number))

    def offer(self, command_id: str, result: bytes) -> int:
        """Keeps the result of a command for `give`; returns the number of its parts, 0 if it is sent whole."""
        if parts := content_parts(result):
            self._use(command_id)[command_id] = dict(enumerate(parts))
        return len(parts)

    def give(self, command_id: str, number: int) -> bytes:
        """Returns a part of the result of a command; raises `CallboardError` if it was lost."""
        part = self._use(command_id).get(command_id, {}).get(number)
        if part is None:
            raise CallboardError(LOST)
        return part

    def _use(self, command_id: str) -> dict[str, dict[int, bytes]]:
        now = self._clock()
        for old in [known for known, last in self._used.items() if now - last > _KEPT_SECONDS]:
            self._parts.pop(old, None)
            del self._used[old]
        self._used[command_id] = now
        return self._parts


def batches(parts: int, size: int = 64) -> Iterator[range]:
    """Yields the numbers of parts that are under way at the same time."""
    for begin in range(0, parts, size):
        yield range(begin, min(begin + size, parts))
