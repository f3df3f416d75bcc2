"""The process in which an environment is tried, because it may hang, crash or end its process.

What the environment has started stays below this process, which does not end by itself, so that all of it is found.

It gets a pickled `EnvironmentTrial` over a socket, after its length, and writes one JSON object per line to it:
`phase`, with what is called next, `warning`, and at the end `done` or `error`.  `HANG_SIGNAL` makes it print where it
is.  It does not import TensorFlow.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import CallboardError, message_of, one_line
from ...messages.caller_words import words_of_command
from ...runtime.descendants import adopt_orphans, end_descendants
from ...settings.named_objects import unpickle_with_program
from ...settings.own_modules import search_working_directory
from ..batches.user_errors import user_frames, user_traceback
from ..factory import environment_text
from ..workers.worker_process import WorkerEnded, WorkerError, WorkerExit
from .trial import EnvironmentTrial, Phase

AnyTrial = TypeVar("AnyTrial", bound=EnvironmentTrial)
LENGTH_BYTES = 8
"""Size of the length that precedes the trial, in network byte order."""
HANG_SIGNAL = signal.SIGUSR1
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
    """Reads a trial, runs it, and waits for the end of the process.

    Args:
      descriptor: the socket that the trial is read from, and the objects are written to.
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

    faulthandler.register(HANG_SIGNAL, all_threads=False)
    for directory in directories:
        search_working_directory(directory)
    pickled = _read(descriptor, int.from_bytes(_read(descriptor, LENGTH_BYTES), "big"))
    try:
        trial: AnyTrial = unpickle_with_program(pickled)
    except Exception:  # What exists only in the other process is not tried.
        send(done=None)
        os._exit(0)
    adopt_orphans()
    end = threading.Thread(target=_end_with, args=(descriptor,), daemon=True)
    end.start()
    try:
        with words_of_command() if by_command else contextlib.nullcontext():
            done = run(trial, enter, lambda text: send(warning=text))
        send(done=done)
    except BaseException as error:
        send(error=error_line(error, environment_text(trial.env), phase[0]), details=_details(error))
    sys.stdout.flush()
    end.join()


def _end_with(descriptor: int) -> None:
    """Ends this process with the one that waits for the result, however that has ended.

    Meanwhile the thread must hold no lock, since environments may fork: it reads the descriptor itself.
    """
    with contextlib.suppress(OSError):
        os.read(descriptor, 1)
    end_descendants(os.getpid())
    os._exit(1)


def _read(descriptor: int, size: int) -> bytes:
    """Reads so many bytes; ends the process if the other side has ended."""
    read = b""
    while len(read) < size:
        part = os.read(descriptor, size - len(read))
        if not part:
            os._exit(1)
        read += part
    return read


def error_line(error: BaseException, name: str, phase: Phase) -> str:
    """Returns one line about an error that an environment has raised, or that was found in what it gave.

    Args:
      error: the error.
      name: name of the environment.
      phase: what was called.
    """
    where = phase_text(phase)
    if isinstance(error, SystemExit | WorkerExit):
        code = error.code if isinstance(error, WorkerExit) else message_of(error)
        return f"environment {name!r}: {where} calls sys.exit({code}); let it raise an exception instead"
    if isinstance(error, CallboardError):
        text = one_line(error)
        # Before anything is called, it is about a setting, which it names.
        return text if phase == "import" or repr(name) in text else f"environment {name!r}, in {where}: {text}"
    if isinstance(error, WorkerError):
        return f"environment {name!r}: {where} raises {one_line(error)}"
    if isinstance(error, WorkerEnded):
        return f"environment {name!r}: {where} {error.how}; {error.advice}"
    frame = user_frames(error)[-1]
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    return f"environment {name!r}: {where} raises {one_line(error)} ({place})"


def _details(error: BaseException) -> str | None:
    """Returns more lines about an error; None for what was printed last."""
    if isinstance(error, WorkerError):
        return error.trace
    if isinstance(error, WorkerEnded):
        return None
    return "" if isinstance(error, CallboardError | SystemExit) else user_traceback(error)
