"""How a worker serves requests, until the process that uses it ends.

This module is part of the program of workers (see `worker_process`): Python 3.9 and NumPy are all that it needs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from ...runtime.imports_elsewhere import import_elsewhere
from .exchange import SLOTS, Channel, Exchange, text_of
from .making import made_environments
from .named_imports import check_wrappers, named_origins, spawn_on_this_path
from .stepping import Agents, Refused, Vector, message_of_error, name_of

_SET_SIGNAL = 10
"""`F_SETSIG` of Linux, which Python 3.9 does not name."""
HANG_SIGNAL = signal.SIGURG
"""Makes a worker print where it is; processes that do not know it ignore it."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def _about(made: Any) -> dict[str, Any]:
    first = made.environments[0]
    metadata = getattr(first, "metadata", None) or {}
    rate = metadata.get("render_fps")
    return {
        "kind": type(made).__name__,
        "observation": made.observation,
        "action": made.action,
        "name": name_of(first),
        "render_mode": getattr(first, "render_mode", None),
        "render_modes": [mode for mode in metadata.get("render_modes") or () if isinstance(mode, str)],
        "render_fps": float(rate) if isinstance(rate, (int, float)) else None,
        **made.about,
    }


def _error(error: BaseException) -> dict[str, Any]:
    """Returns an error for the other side."""
    if isinstance(error, Refused):
        return error.details
    if isinstance(error, SystemExit):
        return {"kind": "exit", "code": message_of_error(error)}
    text = " ".join(message_of_error(error).split())
    if type(error).__name__ == "DependencyNotInstalled":
        found = re.findall(r"pip install ['\"]?([\w\[\]-]+)", text)
        return {"kind": "missing", "package": found[-1] if found else "", "reason": text}
    kinds = type(error).__mro__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != "<worker>"]
    lines = traceback.format_list(own or frames) + traceback.format_exception_only(type(error), error)
    return {
        "kind": "raised",
        "types": [kind.__name__ for kind in kinds if kind is kinds[0] or kind not in Exception.__mro__],
        "text": (message_of_error(error).strip().splitlines() or [""])[0],
        "place": f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}" if own else "",
        "traceback": "Traceback (most recent call last):\n" + "".join(lines).rstrip()[-50_000:],
    }


def _end_with(lifeline: int) -> None:
    """Lets Linux kill this process and what it has started once the other end of a pipe is closed."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _leave_stop_signals() -> None:
    """Leaves signals that stop a run to the process that uses this one, as actors leave them to their launcher.

    Batch systems send them to all processes.  What is forked can be ended by SIGTERM.
    """

    def leave(number: int, frame: Any) -> None:
        pass

    for number in _STOP_SIGNALS:
        signal.signal(number, leave)
        signal.siginterrupt(number, False)

    def leave_to_parent() -> None:
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) is leave:  # It may be the environment's own.
                signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)

    os.register_at_fork(after_in_child=leave_to_parent)


class _Server:
    """Answers requests."""

    def __init__(self, memory: int):
        self._memory = memory
        self._made: Any = None
        self._exchange: Any = None
        self._slot = 0
        self._wants_infos = False

    def step(self) -> Any:
        """Steps the batch, and returns what does not go through the memory; None for nothing."""
        self._slot = (self._slot + 1) % SLOTS
        answer: dict[str, Any] = {}
        infos = self._made.step(self._exchange, self._slot, answer)
        if self._wants_infos and infos:
            answer["infos"] = infos
        return answer or None

    def answer(self, request: Mapping[str, Any]) -> tuple[Any, bytes]:
        kind = request["do"]
        if kind == "find":
            origins = named_origins(request)
            check_wrappers(request)
            return {"origins": origins}, b""
        if kind in ("make", "check"):
            self._made = made_environments({**request, "check": kind == "check"})
            if self._made is None:
                return {}, b""
            self._exchange = Exchange(len(request["seeds"]), self._made.observation, self._made.action)
            os.ftruncate(self._memory, max(self._exchange.size, 1))
            self._exchange.map(self._memory)
            return _about(self._made), b""
        if kind == "reset":
            return self._reset(request.get("seed"), request.get("options")), b""
        if kind == "act":
            self._slot = (self._slot + 1) % SLOTS
            return {"outcome": self._made.act(self._exchange, self._slot, request["acting"])}, b""
        if kind == "task":
            self._made.set_task(request["task"])
        elif kind == "infos":
            self._wants_infos = True
        elif kind == "call":
            return {"results": self._made.call(request["name"], request["arguments"])}, b""
        elif kind == "render":
            import numpy as np

            frame = np.asarray(self._made.render())
            return {"shape": frame.shape, "dtype": frame.dtype.str}, b"" if frame.dtype == object else frame.tobytes()
        elif kind == "close" and self._made is not None:
            self._made.close()
        return {}, b""

    def _reset(self, seed: Any, options: Any) -> Any:
        self._slot = (self._slot + 1) % SLOTS
        errors: Any = (TypeError, ValueError)
        if "gymnasium" in sys.modules:
            errors = (*errors, sys.modules["gymnasium"].error.Error)
        try:
            outcome = self._made.reset(self._exchange, self._slot, seed, options)
        except errors:
            if isinstance(seed, list) and isinstance(self._made, Vector):
                return {"seeds_refused": True}
            raise
        if isinstance(self._made, Agents):
            return {"outcome": outcome}
        return {"infos": outcome} if self._wants_infos else {}


def main(reads: int, writes: int, lifeline: int, memory: int) -> None:
    _end_with(lifeline)
    _leave_stop_signals()
    with contextlib.suppress(OSError):
        # Linux shares processors among sessions first: niceness is that of this session as a whole.
        with open("/proc/self/autogroup", "w") as file:
            file.write(str(os.nice(0)))
    import_elsewhere()
    spawn_on_this_path()
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # There may be no stderr.
        faulthandler.enable()
        faulthandler.register(HANG_SIGNAL, all_threads=False, chain=False)
    channel, server = Channel(reads, writes, text_of), _Server(memory)
    # Processes that are started must not keep the pipes open: their other end learns by them that this process ended.
    os.register_at_fork(after_in_child=channel.close)
    for descriptor in (reads, writes, memory):
        os.set_inheritable(descriptor, False)
    while True:
        try:
            request, _ = channel.receive()
        except EOFError:
            return
        try:
            encoded = channel.encoded(server.step()) if request is None else channel.encoded(*server.answer(request))
        except BaseException as error:  # Whatever it is, the other side raises it.
            encoded = channel.encoded({"error": _error(error)})
        channel.write(encoded)
        if request is not None and request["do"] == "close":
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
