"""The forkserver's process: imports TensorFlow once, forks on request, and ends with the process that it serves.

Every fork leads a new session, so that signals of the terminal do not reach it, and so that all processes that it
started can be found when it ends.  All orphaned descendants become children of the forkserver.  When the other end of
its control socket is closed, which the kernel does even for a process that was killed, the forkserver ends all of them
and itself.

Only the standard library is imported at module level, so that signals are ignored as early as possible.
"""

import contextlib
import functools
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from ....runtime.descendants import adopt_orphans, end_processes
from ....settings.own_modules import search_working_directory
from ...processes.stop_signals import STOP_SIGNALS

FORK = b"fork"
"""Request to fork; it carries the new process's end of a pipe, and the write end of a pipe for its status.

Over the first pipe, the new process receives `sys.path`, the directories of `search_working_directory`, its working
directory and `sys.argv`, then the pickled function and arguments that it calls.  Over the status pipe, the forkserver
sends `("pid", number)` or `("error", text)`, and finally `("exit", code)`.
"""
HOLD = b"hold"
"""Request to keep a file descriptor open, in the forkserver and in all processes that it will fork."""
PING = b"ping"
"""Request to close the file descriptor that comes with it, which shows that requests are being handled."""

_MOST_BYTES = 16
_MOST_DESCRIPTORS = 2


def main(control: int, preload: str) -> None:
    """Serves the process at the other end of a socket until that process ends.

    Args:
      control: file descriptor of this end.
      preload: name of the module to import before anything is forked.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    adopt_orphans()
    with socket.socket(fileno=control) as control_socket:
        os.set_inheritable(control, False)
        with _ended_with(control_socket):
            import_error = _import(preload)
        _Forker(control_socket, import_error).serve()


def _import(module: str) -> str:
    """Imports what all processes need; returns the traceback if that fails, otherwise an empty string."""
    try:
        importlib.import_module(module)
    except BaseException:
        return traceback.format_exc()
    return ""


@contextlib.contextmanager
def _ended_with(control: socket.socket) -> Iterator[None]:
    """While the context is active, exit this process as soon as the other end of the socket is closed."""
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
    """Forks processes and reports their exit codes."""

    def __init__(self, control: socket.socket, import_error: str):
        self._control = control
        self._import_error = import_error
        self._statuses: dict[int, Connection] = {}
        """Status pipes by process id."""
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
        """Handles one request; returns False if there will be no more."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _MOST_BYTES, _MOST_DESCRIPTORS)
        except ConnectionError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if request == FORK and len(descriptors) == _MOST_DESCRIPTORS:
            self._fork(*descriptors)
        elif request in (FORK, PING):
            # Closing the descriptors answers a ping, and rejects a fork request of which not all descriptors were
            # received.
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
                answer = ("error", f"cannot start another process ({error.strerror}); see `ulimit -u`")
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
            pass  # The process that requested the fork has died.
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Reaps all children that have ended, and ends the processes that they left running."""
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
                # The session id cannot be reused until the child has been waited for.
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
    """Calls the function received over the pipe, with the pipe as its last argument."""
    sys.path[:], searched, directory, sys.argv[:] = pipe.recv()
    for each in searched:
        search_working_directory(each)
    with contextlib.suppress(OSError):
        os.chdir(directory)
    function, arguments = pickle.loads(pipe.recv_bytes())
    function(*arguments, pipe)


def _members_of(session: int) -> list[int]:
    return [pid for pid, _, of in _processes() if of == session]


def _processes() -> list[tuple[int, int, int]]:
    """Returns the id, parent id and session id of every running process."""
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
        pass  # The receiver has ended or is ending.
