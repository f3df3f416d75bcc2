"""Calls at the end of a program, for what it has left open."""

import atexit
import threading
from collections.abc import Callable

_calls: list[Callable[[], object]] = []
"""Those that were added in the main thread."""


def call_at_exit(call: Callable[[], object]) -> None:
    """Calls a function at the end of the program; in the main thread, before a Launchpad program is waited for."""
    if threading.current_thread() is not threading.main_thread():
        atexit.register(call)
        return
    _calls.append(call)
    # These functions are called before those of `atexit`, the last one first.  Launchpad has registered one that waits
    # for its program.
    threading._register_atexit(_make_calls)  # type: ignore[attr-defined]


def remove_call(call: Callable[[], object]) -> None:
    """Takes back what was added, if it was."""
    atexit.unregister(call)
    if call in _calls:
        _calls.remove(call)


def _make_calls() -> None:
    for call in list(_calls):
        call()
