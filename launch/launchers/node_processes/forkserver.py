"""The forkserver: a process that imports TensorFlow once and is forked for every node.

It belongs to this process and ends with it, however this process ends.  See `forkserver_process` for the other side.
"""

import contextlib
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import psutil

from ....errors import CallboardError
from ....runtime.deadlines import Deadline
from ....runtime.interpreter import python_command
from ....settings.own_modules import searched_directories
from ...processes.stop_signals import STOP_SIGNALS
from .forkserver_process import FORK, HOLD, PING

_END_SECONDS = 8.0
_ORPHAN_SECONDS = 1.0
_POLL_SECONDS = 0.5
_ZOMBIE_SECONDS = 5.0
"""Time in which the forkserver normally reaps a process that has ended, and ends the processes that it started."""


class CannotFork(CallboardError):
    """The forkserver cannot start processes; the message gives the reason."""


class ForkedProcess:
    """A process forked from the forkserver.

    Attributes:
      pid: process id.
      pipe: this end of the pipe to the function that the process runs.
      exitcode: as in `subprocess`; None while the process runs, or if its exit code was lost with the forkserver.
    """

    def __init__(self, pid: int, pipe: Connection, status: Connection):
        self.pid = pid
        self.pipe = pipe
        self.status = status
        """Becomes readable when the process has ended."""
        self.exitcode: int | None = None
        self.is_orphan = False
        """Whether the forkserver died before this process did."""
        self._ended = False
        # psutil.Process also compares the start time, because process ids are reused.
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the process and everything it started have ended; returns whether they have."""
        deadline = Deadline(math.inf if timeout is None else timeout)
        zombie_since: float | None = None
        while not self._ended:
            if self.status.poll(min(_POLL_SECONDS, deadline.left)):
                try:
                    _, self.exitcode = self.status.recv()
                    self._ended = True
                except (EOFError, OSError):
                    # The forkserver has died, and the process that adopts its children does not report their exit
                    # codes.
                    self.is_orphan = True
                    self._ended = self._wait_for_end(timeout)
                    break
            elif not self._is_zombie():
                zombie_since = None
            elif zombie_since is None:
                zombie_since = time.monotonic()
            else:
                # A forkserver that hangs does not report the end of its children.
                self._ended = time.monotonic() - zombie_since > _ZOMBIE_SECONDS
            if deadline.has_passed:
                break
        return self._ended

    def kill(self) -> None:
        if self._process is not None and not self._ended:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                try:
                    self._process.kill()
                except OSError:  # Without a free descriptor it cannot look up whose id it is.
                    os.kill(self._process.pid, signal.SIGKILL)

    def _is_zombie(self) -> bool:
        try:
            return self._process is None or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except OSError:  # There is no free descriptor: later.
            return False

    def _wait_for_end(self, timeout: float | None) -> bool:
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except psutil.TimeoutExpired:
                return False
        return True


class ForkServer:
    """A process that forks on request; it is started when it is first needed.

    Args:
      preload: name of the module that it imports first.

    Attributes:
      starts: how often it was started.
    """

    def __init__(self, preload: str = "callboard.launch.preload"):
        self._preload = preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._held: list[int] = []
        self._has_forked = False
        self._killed = 0
        self.starts = 0

    def start(self) -> None:
        with self._lock:
            self._start()

    def fork(self, function: Callable[..., Any], *arguments: Any) -> ForkedProcess:
        killed = self._killed
        try:
            return self._fork(function, *arguments)
        except CannotFork:
            if self._killed == killed:
                raise
            return self._fork(function, *arguments)

    def ping(self) -> int:
        """Returns a file descriptor that becomes readable once requests are handled again; the caller closes it."""
        ready, ready_end = os.pipe()
        try:
            self._send(PING, ready_end)
        except CannotFork:
            pass  # A dead forkserver is fine too: a new one is started when it is needed.
        finally:
            os.close(ready_end)
        return ready

    def kill(self) -> None:
        """Kills a forkserver that hangs.  Its forks continue to run; a new forkserver is started when it is needed."""
        with self._lock:
            if self._process is not None:
                self._killed += 1
                self._process.kill()
                self._process.wait()

    def _fork(self, function: Callable[..., Any], *arguments: Any) -> ForkedProcess:
        content = pickle.dumps((function, arguments))
        pipe, child_end = Pipe()
        status, status_end = Pipe(duplex=False)
        with contextlib.ExitStack() as on_error:
            on_error.callback(pipe.close)
            on_error.callback(status.close)
            with child_end, status_end:
                self._send(FORK, child_end.fileno(), status_end.fileno())
            try:
                kind, answer = status.recv()
                if kind == "error":
                    raise CannotFork(answer)
                pipe.send((sys.path, searched_directories(), _working_directory(), sys.argv))
                pipe.send_bytes(content)
            except (EOFError, OSError):
                raise CannotFork("the forkserver has died, or may open no more files") from None
            on_error.pop_all()
        return ForkedProcess(answer, pipe, status)

    @contextlib.contextmanager
    def holding(self, descriptor: int) -> Iterator[None]:
        self._held.append(descriptor)
        try:
            with self._lock:
                if self._control is not None:
                    with contextlib.suppress(OSError):
                        socket.send_fds(self._control, [HOLD], [descriptor])
            yield
        finally:
            self._held.remove(descriptor)

    def leave_to_parent(self) -> None:
        """Closes the connection in a fork of this process, which would otherwise keep the forkserver running."""
        if self._control is not None:
            self._control.close()

    def stop(self) -> None:
        with self._lock:
            process, control = self._process, self._control
            self._process = self._control = None
            if process is None or control is None:
                return
            control.close()
            # While it is still importing there is nothing to clean up, and the import may take long.
            patience = _END_SECONDS if self._has_forked else 0.0
            self._has_forked = False
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if self._control is not None:
            self._control.close()
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = f"{__package__}.forkserver_process"
        code = f"from {module} import main; main({other.fileno()}, {self._preload!r})"
        # Stop signals are blocked until the forkserver ignores them, which it does as early as possible.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._process = subprocess.Popen(
                python_command(code, in_new_session=True),
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
            self.starts += 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            other.close()
        for descriptor in self._held:
            socket.send_fds(self._control, [HOLD], [descriptor])

    def _send(self, request: bytes, *descriptors: int) -> None:
        with self._lock:
            self._start()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [request], list(descriptors))
            except OSError as error:
                raise CannotFork(f"the forkserver has died ({error.strerror})") from error
            self._has_forked = self._has_forked or request == FORK


_forkserver = ForkServer()
# An environment that this process makes, for its spaces, may fork it.
os.register_at_fork(after_in_child=lambda: _forkserver.leave_to_parent())


def start_forkserver() -> None:
    """Starts the forkserver in the background, so that its imports overlap with other work of the caller."""
    _forkserver.start()


def stop_forkserver() -> None:
    """Ends the forkserver and all processes that it started; it starts again when it is needed."""
    _forkserver.stop()


def fork_process(function: Callable[..., Any], *arguments: Any) -> ForkedProcess:
    """Calls a function in a fork of the forkserver, with a pipe to this process as its last argument.

    Args:
      function: a module-level function.
      arguments: picklable arguments.

    Raises:
      CannotFork: the forkserver's imports failed, or it died or was stopped.
    """
    return _forkserver.fork(function, *arguments)


def ping_forkserver() -> int:
    """Returns a file descriptor that becomes readable once the forkserver handles requests; the caller closes it."""
    return _forkserver.ping()


def forkserver_starts() -> int:
    """Returns how often the forkserver was started."""
    return _forkserver.starts


def kill_forkserver() -> None:
    """Kills a forkserver that hangs.  Its forks continue to run, and a new forkserver is started when it is needed."""
    _forkserver.kill()


def held_open(descriptor: int) -> contextlib.AbstractContextManager[None]:
    """Keeps a file descriptor open in the forkserver and its forks until the last of them has ended."""
    return _forkserver.holding(descriptor)


def wait_for_any(process: ForkedProcess) -> list[Any]:
    """Waits until the process has sent something or may have ended; returns the pipes that are ready.

    Those are `pipe`, `status` or both.
    """
    if process.is_orphan:
        # The status pipe of an orphan is always readable.
        return wait([process.pipe], _ORPHAN_SECONDS)
    return wait([process.pipe, process.status])


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # The working directory was removed.
