"""One side of a benchmark, in a separate process.

TensorFlow's settings, its threads and its memory are per process, so two sides must not share one.  A side's process is
kept for all repeats, so that set-up happens only once, and is idle between measurements.  It is forked from the
launchers' forkserver, which imports TensorFlow once for all sides.
"""

import abc
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from ..launch.launchers.node_processes.forkserver import fork_process
from ..launch.launchers.node_processes.prepared_process import prepare_tensorflow
from ..launch.nodes.node import NodeRules

_PATIENCE_SECONDS = 3600.0
_END_SECONDS = 20.0
_SIDE_END_SECONDS = 90.0
"""A side may have to end processes that it started."""
_PR_SET_PDEATHSIG = 1


class SideFailed(Exception):
    """A side could not be measured; contains its traceback."""


class Side(abc.ABC):
    """Something that can be measured repeatedly."""

    @abc.abstractmethod
    def measure(self) -> float:
        """Measure one figure, including any warm-up.  Must not leave anything running that uses CPU time."""

    def close(self) -> None:  # noqa: B027
        """End everything that the side has started."""


MakeSide = Callable[[], Side]
"""Makes a side in its process; must be picklable."""


class SideProcess:
    """A side in a separate process.

    Args:
      make: makes the side.
      rules: rules of the node whose TensorFlow settings it uses; None leaves the settings unchanged.
    """

    def __init__(self, make: MakeSide, rules: NodeRules | None = None):
        self._process = fork_process(_serve, make, rules)
        self._pipe = self._process.pipe

    def measure(self) -> float:
        """Measure one figure of the side.

        Raises:
          SideFailed: with the traceback of the side, or because its process died or took more than an hour.
        """
        try:
            # A process whose side could not be made has ended, and what it sent is still in the pipe.
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send("measure")
            if not self._pipe.poll(_PATIENCE_SECONDS):
                raise SideFailed(f"no figure within {_PATIENCE_SECONDS:.0f} s")
            figure, error = self._pipe.recv()
        except (EOFError, OSError) as end:
            raise SideFailed("its process has died") from end
        if error:
            raise SideFailed(error)
        return figure

    def close(self) -> None:
        """End the side and its process."""
        _send(self._pipe, "close")
        _end(self._process, _SIDE_END_SECONDS)


class ServingProcess:
    """A server in a separate process, until it is closed or the process that created it ends.

    The process is a fork, so create it before TensorFlow, Reverb or Courier have been used.  It is idle until `start`.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._closed = False
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_start_and_wait, args=(self._pipe, other_end))
        self._process.start()
        other_end.close()

    def start(self, start: Callable[[], tuple[Any, Any]]) -> Any:
        """Call `start` in the process.

        It returns an object to keep alive there, and the value that this method returns.  Both `start` and that value
        must be picklable.

        Raises:
          SideFailed: with the traceback of `start`.
        """
        self._pipe.send(start)
        try:
            answer, error = self._pipe.recv()
        except EOFError:
            raise SideFailed("the process that serves has died") from None
        if error:
            raise SideFailed(error)
        threading.Thread(target=self._end_with_it, name="serving process", daemon=True).start()
        return answer

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def pause(self) -> None:
        """Suspend the process until `resume`; not for a process that serves others, which would block."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self._closed = True
        self.resume()
        _send(self._pipe, None)
        _end(self._process, _END_SECONDS)

    def _end_with_it(self) -> None:
        """End this process too if the server's process dies; otherwise its clients would wait forever."""
        wait([self._process.sentinel])
        if not self._closed:
            sys.stderr.write("a process that serves has died\n")
            os._exit(1)


def _serve(make: MakeSide, rules: NodeRules | None, pipe: Connection) -> None:
    side: Side | None = None
    try:
        if rules is not None:
            prepare_tensorflow(rules)
        side = make()
        while pipe.recv() == "measure":
            pipe.send((side.measure(), None))
    except EOFError:
        pass  # The measuring process has died.
    except BaseException:
        _send(pipe, (None, traceback.format_exc()))
    if side is not None:
        side.close()
    # A thread that is blocked in C++ would keep the process alive.
    sys.stderr.flush()
    os._exit(0)


def _start_and_wait(others_end: Connection, pipe: Connection) -> None:
    # The fork holds both ends, and could not detect that the other process has closed its end.
    others_end.close()
    # A process that is paused cannot detect that the other one has died.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))
    kept: Any = None
    try:
        start = pipe.recv()
        if start is not None:
            kept, answer = start()
            pipe.send((answer, None))
            pipe.recv()
    except EOFError:
        pass  # The process that created this one has died.
    except BaseException:
        _send(pipe, (None, traceback.format_exc()))
    # It may hold temporary files.
    del kept
    os._exit(0)


def _end(process: Any, patience: float) -> None:
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()


def _send(pipe: Connection, what: Any) -> None:
    try:
        pipe.send(what)
    except OSError:
        pass  # The other side is gone.
