"""The process in which an environment is tried, because it may hang, crash or end its process.

It gets a pickled `Trial` through its standard input, and writes one JSON object per line to a pipe: `phase`, with what
is called next, `warning`, and at the end `done` or `error`.  It does not import TensorFlow.
"""

import contextlib
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...caller_words import words_of_command
from ...errors import CallboardError
from ...own_modules import search_working_directory
from ..factory import environment_text
from .trial import Phase, Trial, try_environment
from .user_traceback import user_frames, user_traceback

AnyTrial = TypeVar("AnyTrial", bound=Trial)
_WHERE = {
    "import": "the import of its module",
    "constructor": "its constructor",
    "reset": "'reset'",
    "step": "'step'",
    "close": "'close'",
}


def phase_text(phase: Phase) -> str:
    """Returns what is called in a phase, for messages."""
    return _WHERE[phase]


def serve_trial(
    descriptor: int,
    directories: Sequence[str],
    by_command: bool,
    run: Callable[[AnyTrial, Callable[[Phase], object], Callable[[str], object]], Any],
) -> None:
    """Reads a trial from the standard input, runs it, and ends the process.

    Args:
      descriptor: the pipe that the objects are written to.
      directories: those of `search_working_directory`.
      by_command: whether a user of the command reads the messages.
      run: runs the trial; what it returns, plain data, is sent with `done`.
    """

    def send(**message: Any) -> None:
        os.write(descriptor, (json.dumps(message) + "\n").encode())

    phase: list[Phase] = ["import"]

    def enter(entered: Phase) -> None:
        phase[0] = entered
        send(phase=entered)

    for directory in directories:
        search_working_directory(directory)
    try:
        trial: AnyTrial = pickle.load(sys.stdin.buffer)
    except Exception:  # What exists only in the other process is not tried.
        send(done=None)
        os._exit(0)
    # The pipe closes when the process that waits for the result has ended, however it did.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    try:
        with words_of_command() if by_command else contextlib.nullcontext():
            done = run(trial, enter, lambda text: send(warning=text))
        send(done=done)
    except BaseException as error:
        send(error=error_line(error, environment_text(trial.env), phase[0]), details=_details(error))
    sys.stdout.flush()
    os._exit(0)


def error_line(error: BaseException, name: str, phase: Phase) -> str:
    """Returns one line about an error that an environment has raised, or that was found in what it gave.

    Args:
      error: the error.
      name: name of the environment.
      phase: what was called.
    """
    where = phase_text(phase)
    if isinstance(error, CallboardError):
        return str(error) if repr(name) in str(error) else f"environment {name!r}, in {where}: {error}"
    if isinstance(error, SystemExit):
        return f"environment {name!r}: {where} calls sys.exit({error.code!r}); let it raise an exception instead"
    frame = user_frames(error)[-1]
    text = (str(error).strip().splitlines() or [""])[0]
    kind = type(error).__name__
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    return f"environment {name!r}: {where} raises {kind}{': ' if text else ''}{text} ({place})"


def _details(error: BaseException) -> str:
    return "" if isinstance(error, CallboardError | SystemExit) else user_traceback(error)


def main(descriptor: int, directories: Sequence[str], by_command: bool) -> None:
    """Tries an environment, see `try_environment`."""
    serve_trial(descriptor, directories, by_command, try_environment)
