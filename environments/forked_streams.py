"""Standard streams and log handlers that work in processes which environments fork.

A fork copies the locks of Python's buffered streams as they are.  If another thread was writing at that moment, the
new process would wait for ever for the lock of its copy: `multiprocessing` closes the input of a new process, and
flushes its output when it ends.
"""

import functools
import io
import logging
import os
import sys
from typing import Any

_left: list[Any] = []
"""Streams of the parent, which must not be collected: that would flush and close them."""


class OutputFile(io.FileIO):
    """A file that drops what it cannot write, so that a full disk does not end a process that prints."""

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        try:
            while rest:
                rest = rest[super().write(rest) or 0 :]
        except OSError:
            pass
        return size


def text_output(descriptor: int, encoding: str = "utf-8") -> io.TextIOWrapper:
    """Returns a text stream to a descriptor, without a lock, which drops what it cannot write."""
    # Python's own unbuffered mode does without a buffer, and so without its lock, too.
    file: Any = OutputFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(file, encoding=encoding, errors="backslashreplace", line_buffering=True)


@functools.cache
def allow_forks() -> None:
    """Gives every process that is forked from this one standard streams and log handlers of its own."""
    os.register_at_fork(after_in_child=_replace_streams)


def _replace_streams() -> None:
    """Replaces streams without touching their locks; what the parent has not flushed yet, it will flush itself."""
    new: dict[int, Any] = {}
    descriptor = _descriptor(sys.stdin)
    if descriptor is not None:
        _left.append(sys.stdin)
        sys.stdin = open(descriptor, closefd=False)
    for name in ("stdout", "stderr"):
        setattr(sys, name, _replacement(getattr(sys, name), new))
    for logger in [logging.root, *logging.root.manager.loggerDict.values()]:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.StreamHandler):
                handler.stream = _replacement(handler.stream, new)


def _replacement(stream: Any, new: dict[int, Any]) -> Any:
    descriptor = _descriptor(stream)
    if descriptor is None or id(stream) in new:
        return new.get(id(stream), stream)
    _left.append(stream)
    new[id(stream)] = replacement = text_output(descriptor, stream.encoding)
    new[id(replacement)] = replacement
    return replacement


def _descriptor(stream: Any) -> int | None:
    """Returns the descriptor of a buffered text stream; None for any other object."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
