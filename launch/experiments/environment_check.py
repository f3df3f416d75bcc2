"""The check of an environment before a run: a short trial in a process of its own, which may hang or crash."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil

from ...environments import environment_text, is_of_library
from ...environments.batches.user_errors import waiting_place
from ...environments.checks.trial import EnvironmentTrial, Phase, try_environment
from ...environments.checks.trial_process import HANG_SIGNAL, LENGTH_BYTES, phase_text, serve_trial
from ...environments.workers.serving import HANG_SIGNAL as WORKERS_HANG_SIGNAL
from ...environments.workers.worker_process import is_worker
from ...errors import CallboardError, anything_raised, one_line, signal_name
from ...messages.caller_words import is_by_command
from ...runtime.deadlines import Deadline, wait_until
from ...runtime.descendants import descendants, end_descendants
from ...runtime.interpreter import python_command
from ...settings.named_objects import import_object, pickled_with_program
from ...settings.own_modules import searched_directories
from .parts.acting_part import ActingPart

_logger = logging.getLogger(__name__)

_SLOW_SECONDS = 600.0
"""The least time that an environment has to be made and to begin its first episode."""
_CLOSE_SECONDS = 30.0
_NOTICE_SECONDS = 8.0
_LOOK_SECONDS = 0.5
_TRACEBACK_SECONDS = 2.0
_OUTPUT_LINES = 10
_SOONER = "let it return sooner"
_UNCHECKED = f"{_SOONER}, or leave the check out with check_env false (--check-env false)"
_ADVICE: Mapping[Phase, str] = {
    "import": _UNCHECKED,
    "constructor": _UNCHECKED,
    "reset": _UNCHECKED,
    "step": f"{_SOONER}, or increase node_timeout",
    "close": "let it return",
}


class EnvironmentCheck:
    """A trial of an environment in another process; `wait` returns its result, and `close` ends it.

    Args:
      name: the environment's name, for messages.
      trial: the pickled `EnvironmentTrial`.
      timeout: seconds that a step may take.
      notify: takes a line of text for the user.
      run: runs the trial in the process, see `serve_trial`; a function of a module.
      advice: what helps where a phase takes too long.
    """

    def __init__(
        self,
        name: str,
        trial: bytes,
        timeout: float,
        notify: Callable[[str], object] = _logger.warning,
        run: Callable[..., Any] = try_environment,
        advice: Mapping[Phase, str] = _ADVICE,
    ):
        self._name = name
        self._advice = advice
        self._limits: dict[Phase, float] = {
            "import": max(timeout, _SLOW_SECONDS),
            "constructor": max(timeout, _SLOW_SECONDS),
            "reset": max(timeout, _SLOW_SECONDS),
            "step": timeout,
            "close": min(timeout, _CLOSE_SECONDS),
        }
        self._notify = notify
        self._phase: Phase = "import"
        self._has_begun = False
        self._rest = b""
        self._result: tuple[Any] | None = None
        self._output = tempfile.TemporaryFile()
        self._socket, end = socket.socketpair()
        code = (
            f"from {serve_trial.__module__} import serve_trial; from {run.__module__} import {run.__name__}; "
            f"serve_trial({end.fileno()}, {searched_directories()!r}, {is_by_command()}, {run.__name__})"
        )
        try:
            # A session of its own receives no Ctrl-C, and can be ended with what the environment has started.
            self._process = subprocess.Popen(
                python_command(code, in_new_session=True),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[end.fileno()],
                start_new_session=True,
            )
        finally:
            end.close()
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(len(trial).to_bytes(LENGTH_BYTES, "big") + trial)

    def wait_until_imported(self) -> None:
        """Waits until the environment's module is imported; raises as `wait` does."""
        self._wait(lambda: self._phase != "import")

    def wait(self) -> Any:
        """Waits for the end of the trial.

        Returns:
          What the trial has returned.

        Raises:
          CallboardError: the environment cannot be used, or one of its methods hangs, or ends the process.
        """
        return self._wait(lambda: False)

    def close(self) -> None:
        """Ends the process, and what it has started."""
        end_descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._socket.close()
        self._output.close()

    def _wait(self, is_enough: Callable[[], bool]) -> Any:
        limit, noticed = Deadline(self._limits[self._phase]), False
        notice = Deadline(_NOTICE_SECONDS)
        while self._result is None and not is_enough():
            # Processes that the environment has started may hold the socket open after the process has ended.
            ended = self._process.poll() is not None
            wait = 0.0 if ended else min(_LOOK_SECONDS, limit.left)
            if b"\n" in self._rest or select.select([self._socket], [], [], wait)[0]:
                message = self._read()
                if message is None:
                    continue
                self._has_begun = True
                if "done" in message:
                    self._result = (message["done"],)
                elif "error" in message:
                    details = message["details"]
                    raise CallboardError(message["error"], self._last_words() if details is None else details)
                elif "warning" in message:
                    self._notify(message["warning"])
                else:
                    self._phase = message["phase"]
                    limit, noticed, notice = Deadline(self._limits[self._phase]), False, Deadline(_NOTICE_SECONDS)
            elif ended:
                raise self._ended()
            elif limit.has_passed:
                raise CallboardError(
                    f"environment {self._name!r}: {phase_text(self._phase)} has not returned for "
                    f"{self._limits[self._phase]:.0f} s; {self._what_helps()}"
                )
            elif not noticed and notice.has_passed:
                noticed = True
                self._notify(
                    f"environment {self._name!r}: {phase_text(self._phase)} has not returned for {_NOTICE_SECONDS:.0f} "
                    f"s, at most {self._limits[self._phase]:.0f} s; {self._what_helps()}"
                )
        return None if self._result is None else self._result[0]

    def _read(self) -> Mapping[str, Any] | None:
        """Returns the next message; None if it is not complete.

        Raises:
          CallboardError: the process has ended.
        """
        if b"\n" not in self._rest:
            read = b""
            with contextlib.suppress(ConnectionError):
                read = self._socket.recv(65536)
            if not read:
                raise self._ended()
            self._rest += read
        line, separator, rest = self._rest.partition(b"\n")
        if not separator:
            return None
        self._rest = rest
        return json.loads(line)

    def _what_helps(self) -> str:
        """Returns advice for a call that does not return, with the place where it waits."""
        advice = self._advice.get(self._phase, _SOONER)
        started = _commands_below(self._process.pid)
        workers = [one for one, command in started.items() if is_worker(command)]
        others = [str(one.pid) for one in started if one not in workers]
        if others:
            advice = f"see whether it waits for what it has started, process {' and '.join(others)}, or {advice}"
        # One after the other: each writes its lines piece by piece.
        processes: list[psutil.Process | subprocess.Popen[bytes]] = [*workers]
        if self._has_begun:
            processes.append(self._process)
        place = next(filter(None, map(self._place_of, processes)), "")
        return f"{advice} ({place})" if place else advice

    def _place_of(self, process: psutil.Process | subprocess.Popen[bytes]) -> str:
        """Returns the place in a user's own file where a process is; empty if it does not tell."""
        printed = len(self._printed())
        with contextlib.suppress(psutil.Error):
            process.send_signal(HANG_SIGNAL if process is self._process else WORKERS_HANG_SIGNAL)
        wait_until(lambda: waiting_place(self._printed()[printed:]), _TRACEBACK_SECONDS)
        return waiting_place(self._printed()[printed:])

    def _printed(self) -> list[str]:
        # The position in the file is shared with the process.
        descriptor = self._output.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace").splitlines()

    def _ended(self) -> CallboardError:
        code = self._process.wait()
        how = f"ends the process with exit code {code}"
        if code < 0:
            how = f"crashes the process ({signal_name(-code)})"
        return CallboardError(
            f"environment {self._name!r}: {phase_text(self._phase)} {how}; let it raise an exception instead",
            self._last_words(),
        )

    def _last_words(self) -> str:
        return "\n".join(self._printed()[-_OUTPUT_LINES:])


def _commands_below(pid: int) -> dict[psutil.Process, list[str]]:
    """Returns the processes that a process has started and that still run, with their command lines."""
    found = {}
    for process in descendants(pid):
        with contextlib.suppress(psutil.Error):
            found[process] = process.cmdline()
    return found


_passed: set[bytes] = set()
"""Digests of the trials that have passed in this process."""


@contextlib.contextmanager
def environment_check(
    acting: ActingPart, node_timeout: float, notify: Callable[[str], object] = _logger.warning
) -> Iterator[None]:
    """Runs the check of a run's environment within the context, which begins once the environment's module is imported.

    Nothing is run if the environment is one of a library, was checked in this process before, cannot be pickled, or
    `check_env` is false.

    Args:
      acting: names the environment, and how it is made.
      node_timeout: seconds that a step may take.
      notify: takes a line of text for the user.
    """
    options = acting.options_of_env
    trial = EnvironmentTrial(
        with_objects(acting.env),
        options,
        acting.agent_options,
        batch_size=min(2, acting.envs_per_actor),
        seed=acting.seed,
    )
    pickled = None
    if acting.check_env and not is_of_library(acting.env, options):
        pickled = _pickled(trial)
    # The same name stands for the same code; a class of this program may have been defined anew.
    digest = hashlib.sha256(repr(trial).encode() if trial.env == acting.env else pickled or b"").digest()
    if pickled is None or digest in _passed:
        yield
        return
    check = EnvironmentCheck(environment_text(acting.env), pickled, node_timeout, notify)
    try:
        check.wait_until_imported()
        yield
        check.wait()
        _passed.add(digest)
    finally:
        check.close()


def check_environment(acting: ActingPart, node_timeout: float) -> None:
    """Checks a run's environment, see `environment_check`.

    Raises:
      CallboardError: the environment cannot be used, or one of its methods hangs, or ends the process.
    """
    with environment_check(acting, node_timeout):
        pass


def _pickled(trial: EnvironmentTrial) -> bytes | None:
    """Returns a trial for another process; None if it cannot be sent there."""
    try:
        return pickled_with_program(trial)
    except anything_raised() as error:  # Whatever the environment refers to may raise anything.
        _logger.info("the environment is not checked, since it cannot be pickled: %s", one_line(error))
        return None


def with_objects(env: Any) -> Any:
    """Returns an environment, or a list of them, in which what only this program defines is not given by its name."""
    if isinstance(env, tuple):
        return tuple(dataclasses.replace(entry, name=with_objects(entry.name)) for entry in env)
    return import_object("environment", env) if isinstance(env, str) and env.startswith("__main__:") else env
