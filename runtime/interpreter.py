"""The one way in which Callboard starts another Python.

`python -c` and `python -m` search the working directory first, which may belong to somebody else: a `ctypes.py` that
lies there would take the place of the library.  So the path of this process is set before anything else is imported
(`sys` is part of the interpreter).  Variables of the environment and flags are those of the user, as for this process.
"""

import contextlib
import multiprocessing.util
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_LIBRARY = __name__.partition(".")[0]


def python_command(code: str, *arguments: str, in_new_session: bool = False) -> list[str]:
    """Returns the command line of a process that runs `code` with the module search path of this one.

    Args:
      code: statements; what they import is searched where this process would search it.
      arguments: `sys.argv[1:]` of the process.
      in_new_session: whether the process begins a session, in which it shall have the priority of this one.
    """
    if in_new_session and os.nice(0):
        code = f"from {__name__} import keep_niceness; keep_niceness(); {code}"
    # Importing Callboard lets libraries that read the working directory be imported elsewhere.
    return [sys.executable, "-c", _on_this_path(f"import {_LIBRARY}; {code}"), *arguments]


def callboard_command(*arguments: str, before: str = "", in_new_session: bool = False) -> list[str]:
    """Returns the command line of a process that runs the command `callboard`.

    Args:
      arguments: those of the command.
      before: statements that are run first.
      in_new_session: as for `python_command`.
    """
    code = f"from {_LIBRARY}.cli.command import run_command; run_command()"
    return python_command(f"{before}; {code}" if before else code, *arguments, in_new_session=in_new_session)


def keep_niceness() -> None:
    """Gives the niceness of this process to its session as a whole.

    Linux shares processors among sessions first, and niceness counts only within one (`man 7 sched`, autogroup), so
    that a new session of a program at low priority would have as much as any other.
    """
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/autogroup").write_text(str(os.nice(0)))


@contextlib.contextmanager
def spawning_on_this_path() -> Iterator[None]:
    """Lets processes that `multiprocessing` spawns within the context, and its resource tracker, start in this way."""
    util: Any = multiprocessing.util
    spawn = util.spawnv_passfds

    def start(path: str | bytes, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
        code = list(arguments).index("-c") + 1
        return spawn(path, [*arguments[:code], _on_this_path(arguments[code]), *arguments[code + 1 :]], descriptors)

    util.spawnv_passfds = start
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


@contextlib.contextmanager
def program_not_run_again() -> Iterator[None]:
    """Lets processes that `multiprocessing` spawns within the context leave the program of this one alone.

    They would run it again; what it defines reaches them by value.
    """
    program = vars(sys.modules["__main__"])
    known: dict[str, Any] = {name: program[name] for name in ("__file__", "__spec__") if name in program}
    program.update(dict.fromkeys(known))
    try:
        yield
    finally:
        program.update(known)


def _on_this_path(code: str) -> str:
    return f"import sys; sys.path[:] = {sys.path!r}; {code}"
