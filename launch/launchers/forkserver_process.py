"""The process behind `forkserver`: imports TensorFlow once, forks on request, and outlives no one that it serves.

Every fork is the first process of a session of its own, so that signals of a terminal do not reach it, and what it has
started can be found when it ends.  All orphans below become children of the forkserver.  When the other end of its
control socket is closed, which the kernel does for a process that was killed, it ends all of them, and itself.

Only the standard library is imported at the top, so that signals are ignored from the first moment.
"""

import contextlib
import ctypes
import functools
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from ..stop_signals import STOP_SIGNALS

FORK = b"fork"
"""Request for a process; comes with its end of a pipe and that of another one for its status.

On the first pipe the process is sent `sys.path`, its working directory and `sys.argv`, then the pickled function and
arguments that it calls.  On the other the forkserver sends `("pid", number)` or `("error", text)`, and at last
`("exit", code)`.
"""
HOLD = b"hold"
"""Request to keep a file descriptor open, here and in all processes to come."""
PING = b"ping"
"""Request to close the file descriptor that comes with it, which shows that requests are handled."""

_MOST_BYTES = 16
_MOST_DESCRIPTORS = 2
_TERMINATE_SECONDS = 0.5
_KILL_SECONDS = 2.0
_PR_SET_CHILD_SUBREAPER = 36


def main(control: int, preload: str) -> None:
    """Serves the process at the other end of a socket, to its end.

    Args:
      control: file descriptor of this end.
      preload: name of the module to import before anything is forked.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with socket.socket(fileno=control) as control_socket:
        os.set_inheritable(control, False)
        with _ended_with(control_socket):
            import_error = _import(preload)
        _Forker(control_socket, import_error).serve()


def _import(module: str) -> str:
    """Imports what all processes need; returns the traceback where that fails, else nothing."""
    try:
        importlib.import_module(module)
    except BaseException:
        return traceback.format_exc()
    return ""


@contextlib.contextmanager
def _ended_with(control: socket.socket) -> Iterator[None]:
    """Ends this process as soon as the other end of the socket is closed, from a thread, while it lasts."""
    done, finish = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(control, select.POLLRDHUP)
        poll.register(done, select.POLLIN)
        if any(descriptor == control.fileno() for descriptor, _ in poll.poll()):
            os._exit(0)

    thread = threading.Thread(target=watch, name="watch")
    thread.start()
    try:
        yield
    finally:
        os.write(finish, b"x")
        thread.join()
        os.close(done)
        os.close(finish)


class _Forker:
    """Forks, and sees processes end."""

    def __init__(self, control: socket.socket, import_error: str):
        self._control = control
        self._import_error = import_error
        self._statuses: dict[int, Connection] = {}
        """By the number of the process."""
        self._wake, self._wake_end = os.pipe()

    def serve(self) -> None:
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._wake, 4096):
                        pass
                self._reap()
            if self._control.fileno() in ready and not self._handle_request():
                self._end_all()
                os._exit(0)

    def _handle_request(self) -> bool:
        """Handles one request; False if there will be none any more."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _MOST_BYTES, _MOST_DESCRIPTORS)
        except ConnectionError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if request == FORK and len(descriptors) == _MOST_DESCRIPTORS:
            self._fork(*descriptors)
        elif request in (FORK, PING):
            # Who asked sees the end of its pipes; of a fork where there was no room for all of them.
            for descriptor in descriptors:
                os.close(descriptor)
        return bool(request)

    def _fork(self, pipe: int, status: int) -> None:
        connection = Connection(status, readable=False)
        answer: tuple[str, Any] = ("error", self._import_error)
        if not self._import_error:
            try:
                pid = os.fork()
            except OSError as error:
                answer = ("error", f"cannot start another process ({error.strerror}): see `ulimit -u`")
            else:
                if pid == 0:
                    self._become_child(pipe, connection)
                self._statuses[pid] = connection
                answer = ("pid", pid)
        os.close(pipe)
        _send(connection, answer)

    def _become_child(self, pipe: int, status: Connection) -> None:
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._wake, self._wake_end):
                os.close(descriptor)
            self._control.close()
            for connection in (*self._statuses.values(), status):
                connection.close()
            _call(Connection(pipe))
            code = 0
        except EOFError:
            pass  # Who asked for this process has died.
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Takes leave of all children that have ended, and of what they have left running."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            status = self._statuses.pop(pid, None)
            if status is not None:
                # As long as it was not waited for, no other session has its number.
                end_processes(functools.partial(_members_of, pid))
            _, code = os.waitpid(pid, 0)
            if status is not None:
                _send(status, ("exit", os.waitstatus_to_exitcode(code)))
                status.close()

    def _end_all(self) -> None:
        for pid in list(self._statuses):
            os.kill(pid, signal.SIGKILL)
        self._statuses.clear()
        end_processes(lambda: [each for each, parent, _ in _processes() if parent == os.getpid()], self._reap)


def _call(pipe: Connection) -> None:
    """Calls what the pipe brings, with the pipe as the last argument."""
    sys.path[:], directory, sys.argv[:] = pipe.recv()
    with contextlib.suppress(OSError):
        os.chdir(directory)
    function, arguments = pickle.loads(pipe.recv_bytes())
    function(*arguments, pipe)


def end_processes(find: Callable[[], Sequence[int]], reap: Callable[[], None] = lambda: None) -> None:
    """Ends processes: asks them to, and kills those that are still there a moment later.

    Args:
      find: gives the numbers of those that run.
      reap: called again and again meanwhile.
    """
    for number, patience in ((signal.SIGTERM, _TERMINATE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        deadline = time.monotonic() + patience
        asked: set[int] = set()
        while found := find():
            for pid in found:
                if pid not in asked:
                    asked.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
            reap()
        reap()


def _members_of(session: int) -> list[int]:
    return [pid for pid, _, of in _processes() if of == session]


def _processes() -> list[tuple[int, int, int]]:
    """Number, parent and session of every process that runs."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if state not in b"ZX":
                found.append((int(entry), int(parent), int(session)))
    return found


def _send(connection: Connection, message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        pass  # It is about to see why.
