"""Where the messages of a run go whose nodes share the user's own process: to files, not to the screen."""

import contextlib
import faulthandler
import io
import logging
import os
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ...environments.forked_streams import text_output
from ..experiments.checked_run import Run
from .node_processes.log_files import keep_bounded, logged_to

_OF_LIBRARIES = ("tensorflow", "absl")
"""Loggers that print what their libraries notice."""

_terminals: list[io.TextIOWrapper] = []

_lock = threading.Lock()
_redirections = 0
"""How many runs of this process redirect its error output."""


@contextlib.contextmanager
def logged_in(run: Run) -> Iterator[None]:
    """Within the context, log messages go to `run.log`, and what native libraries print to `libraries.log`."""
    with (
        native_output_to(run.directory.log("libraries")),
        logged_to(run.directory.log("run"), run.output.log_level),
    ):
        yield


@contextlib.contextmanager
def native_output_to(log: pathlib.Path) -> Iterator[None]:
    """Redirects what this process writes to its error output past Python, within the context.

    Reverb prints a dozen lines per run that no setting turns off.  What Python code prints, loggers included, still
    reaches the terminal, and so does the traceback of a crash.  If several runs overlap, all of them write to the file
    of the first.

    Args:
      log: path of the file, to which output is appended; its directory must exist.
    """
    global _redirections
    with _lock:
        first = _redirections == 0 and _is_open(2)
        _redirections += first
        redirection = _Redirection(log) if first else None
    try:
        yield
    finally:
        if redirection is not None:
            with _lock:
                redirection.end()
                _redirections -= 1


class _Redirection:
    """Error output of native code that goes to a file, while that of Python code stays where it was."""

    def __init__(self, log: pathlib.Path):
        self._terminal = _terminal_stream()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._end = threading.Event()
        keep_bounded(log, self._end)
        self._python: Any = sys.stderr
        # A notebook's or a test's stream does not write to the descriptor.
        self._replaced = _descriptor(self._python) == 2
        if self._replaced:
            self._python.flush()
            sys.stderr = self._terminal
            _replace_in_loggers(self._python, self._terminal)
        self._crashes = faulthandler.is_enabled()
        os.dup2(file, 2)
        os.close(file)
        if self._crashes:
            faulthandler.enable(self._terminal.fileno())

    def end(self) -> None:
        self._end.set()
        os.dup2(self._terminal.fileno(), 2)
        if self._crashes:
            faulthandler.enable(2)
        if self._replaced:
            _replace_in_loggers(self._terminal, self._python)
            if sys.stderr is self._terminal:
                sys.stderr = self._python


def _terminal_stream() -> io.TextIOWrapper:
    """Returns a stream to where the error output goes now, which stays open: Python code may keep it."""
    now = os.fstat(2)
    for stream in _terminals:
        if os.path.samestat(os.fstat(stream.fileno()), now):
            return stream
    _terminals.append(text_output(os.dup(2)))
    return _terminals[-1]


def _replace_in_loggers(old: Any, new: Any) -> None:
    """Lets handlers of the user's loggers write to another stream."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if not isinstance(logger, logging.Logger) or logger.name.partition(".")[0] in _OF_LIBRARIES:
            continue
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is old:
                handler.setStream(new)


def _descriptor(stream: Any) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
