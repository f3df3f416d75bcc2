"""The log file of a node: it receives all output of the process, stays bounded, and never ends the node.

A log of more than 10 MB is copied to `<name>.log.1` and truncated, so that a node has at most about 20 MB of logs.  It
is copied and truncated rather than renamed, because libraries and child processes have the file open too.  A line
printed between the two steps may be lost.
"""

import contextlib
import logging
import logging.handlers
import os
import pathlib
import shutil
import sys
import threading
from collections.abc import Iterator

from ....environments.forked_streams import text_output
from ....files.guarded_files import open_regular

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(message)s"
LOG_TIME_FORMAT = "%H:%M:%S"

_LIMIT_BYTES = 10 * 2**20
_LOOK_SECONDS = 10.0

_bounded: set[str] = set()
"""Logs that a thread of this process keeps bounded."""


def redirect_output(log: str) -> None:
    """Redirects all output of this process, from Python and from libraries, to a file, and keeps the file bounded.

    Args:
      log: path of the file, to which output is appended.
    """
    descriptor = open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout, sys.stderr = text_output(1), text_output(2)
    if log not in _bounded:
        _bounded.add(log)
        keep_bounded(pathlib.Path(log), threading.Event())


def keep_bounded(log: pathlib.Path, end: threading.Event) -> None:
    """Starts a thread that keeps a log bounded until `end` is set."""
    threading.Thread(target=_keep_bounded, args=(log, end), name="log-size", daemon=True).start()


@contextlib.contextmanager
def logged_to(log: pathlib.Path, level: str) -> Iterator[None]:
    """Writes the log messages of this process to a bounded file within the context, where all nodes share a process.

    Warnings still reach the terminal if no other log handler is set up; other handlers receive what they did before.

    Args:
      log: path of the file; its directory must exist.
      level: name of the level of the least important messages that are written.
    """
    root = logging.getLogger()
    file = logging.handlers.RotatingFileHandler(log, maxBytes=_LIMIT_BYTES, backupCount=1, encoding="utf-8")
    file.setFormatter(logging.Formatter(LOG_FORMAT, LOG_TIME_FORMAT))
    file.setLevel(level.upper())
    terminal = logging.lastResort if not root.handlers else None
    handlers = [handler for handler in (file, terminal) if handler is not None]
    before, others = root.level, [(handler, handler.level) for handler in root.handlers]
    for handler, own_level in others:
        handler.setLevel(max(own_level, before))
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(before, file.level) if before else file.level)
    try:
        yield
    finally:
        root.setLevel(before)
        for handler, own_level in others:
            handler.setLevel(own_level)
        for handler in handlers:
            root.removeHandler(handler)
        file.close()


def bound_log(log: pathlib.Path, limit: int = _LIMIT_BYTES) -> None:
    """Moves the content of a log of more than `limit` bytes to `<log>.1`, replacing its previous content.

    If the disk is full, the content is lost.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size <= limit:
            return
        before = log.with_name(log.name + ".1")
        try:
            shutil.copyfile(log, before)
        except OSError:
            before.unlink(missing_ok=True)
        os.truncate(log, 0)


def _keep_bounded(log: pathlib.Path, end: threading.Event) -> None:
    while True:
        bound_log(log)
        if end.wait(_LOOK_SECONDS):
            return
