"""The signals that end a run: SIGINT (Ctrl-C), SIGTERM, SIGHUP (a closed terminal), SIGQUIT, SIGUSR1 and SIGUSR2.

Batch systems send the last two before a job's time is over (SLURM: `--signal=B:USR1@60`).
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LEFT_TO_OTHERS = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that a program may use for something else: where it has a handler, they do not end the run."""

_early: list[int] = []
"""The signal that arrived before a handler of `stop_signals` was installed."""


class Stopped(KeyboardInterrupt):
    """Raised in the main thread by a signal outside of a run, or while a session is open."""

    def __init__(self, number: int):
        super().__init__(number)
        self.exit_code = 128 + number


def raise_at_signals() -> None:
    """Makes stop signals end the command from now on, even as process 1, for which the kernel would ignore them."""

    def leave(number: int, frame: FrameType | None) -> None:
        _early.append(number)
        raise Stopped(number)

    unraisable_before = sys.unraisablehook

    def report(unraisable: "sys.UnraisableHookArgs") -> None:
        # Where Python discards exceptions, this one is not lost, see `_early`.
        if not isinstance(unraisable.exc_value, Stopped):
            unraisable_before(unraisable)

    for number in _to_handle():
        signal.signal(number, leave)
    sys.unraisablehook = report
    os.register_at_fork(after_in_child=_leave_signals_to_parent)


def exit_code_of_signal() -> int | None:
    """Returns the exit code for the first signal since `raise_at_signals`; None if there was none."""
    return Stopped(_early[0]).exit_code if _early else None


class ThreadSignals:
    """Stop signals of a program in another thread than the main one, to which Python delivers none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: list[Callable[[int], object]] = []
        self._sent: int | None = None

    @contextlib.contextmanager
    def delivered(self) -> Iterator[None]:
        """Delivers signals to the handlers of `stop_signals` that this thread installs within the context."""
        _of_thread.signals = self
        try:
            yield
        finally:
            del _of_thread.signals

    def send(self, number: int) -> None:
        """Calls the newest handler, in the calling thread; handlers that are installed later are called at once."""
        with self._lock:
            self._sent = number
            handlers = self._handlers[-1:]
        for handler in handlers:
            handler(number)

    @contextlib.contextmanager
    def handled_by(self, on_signal: Callable[[int], object]) -> Iterator[None]:
        """Calls `on_signal` for signals within the context, and for one that was sent before."""
        with self._lock:
            self._handlers.append(on_signal)
            sent = self._sent
        try:
            if sent is not None:
                on_signal(sent)
            yield
        finally:
            with self._lock:
                self._handlers.remove(on_signal)


_of_thread = threading.local()
"""`signals` are the `ThreadSignals` that are delivered to this thread."""


@contextlib.contextmanager
def stop_signals(on_signal: Callable[[int], object]) -> Iterator[None]:
    """Calls `on_signal` for stop signals within the context.

    In another thread than the main one, these are the signals of `ThreadSignals`, if there are any.
    """
    if threading.current_thread() is not threading.main_thread():
        signals: ThreadSignals | None = getattr(_of_thread, "signals", None)
        with signals.handled_by(on_signal) if signals is not None else contextlib.nullcontext():
            yield
        return
    before = {number: signal.signal(number, lambda number, frame: on_signal(number)) for number in _to_handle()}
    if _early:
        # `Stopped` was raised where Python discards exceptions, such as in a callback of its garbage collector.
        on_signal(_early[0])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pass_on_signals(callback: Callable[[int], object]) -> None:
    """Calls `callback` for every stop signal from now on, from a thread, even while the main thread is blocked in C++.

    Forked child processes can be ended by SIGTERM and ignore the other signals.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
        signal.siginterrupt(number, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_signals_to_parent)

    def listen() -> None:
        while True:
            for number in os.read(reader, 64):
                if number in STOP_SIGNALS:
                    callback(number)

    threading.Thread(target=listen, name="signals", daemon=True).start()


def _leave_signals_to_parent() -> None:
    signal.set_wakeup_fd(-1)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)


def _to_handle() -> list[signal.Signals]:
    return [number for number in STOP_SIGNALS if _is_ours(number, signal.getsignal(number))]


def _is_ours(number: signal.Signals, handler: Any) -> bool:
    if number in _LEFT_TO_OTHERS:
        return handler == signal.SIG_DFL or getattr(handler, "__module__", "") == __name__
    # `nohup` makes the command that it starts ignore SIGHUP.
    return number != signal.SIGHUP or handler != signal.SIG_IGN
