"""The one way in which Callboard starts another Python.

`python -c` and `python -m` search the working directory first, which may belong to somebody else: a `ctypes.py` that
lies there would take the place of the library.  So the path of this process is set before anything else is imported
(`sys` is part of the interpreter).  Variables of the environment and flags are those of the user, as for this process.
"""

import contextlib
import multiprocessing.util
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_LIBRARY = __name__.rpartition(".")[0]


def python_command(code: str, *arguments: str) -> list[str]:
    """Returns the command line of a process that runs `code` with the module search path of this one.

    Args:
      code: statements; what they import is searched where this process would search it.
      arguments: `sys.argv[1:]` of the process.
    """
    return [sys.executable, "-c", _on_this_path(code), *arguments]


def callboard_command(*arguments: str, before: str = "") -> list[str]:
    """Returns the command line of a process that runs the command `callboard`.

    Args:
      arguments: those of the command.
      before: statements that are run first.
    """
    code = f"from {_LIBRARY}.launch.cli.command import run_command; run_command()"
    return python_command(f"{before}; {code}" if before else code, *arguments)


@contextlib.contextmanager
def spawning_on_this_path() -> Iterator[None]:
    """Lets processes that `multiprocessing` spawns within the context, and its resource tracker, start in this way."""
    spawn: Any = multiprocessing.util.spawnv_passfds  # type: ignore[attr-defined]

    def start(path: str | bytes, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
        code = list(arguments).index("-c") + 1
        return spawn(path, [*arguments[:code], _on_this_path(arguments[code]), *arguments[code + 1 :]], descriptors)

    multiprocessing.util.spawnv_passfds = start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        multiprocessing.util.spawnv_passfds = spawn  # type: ignore[attr-defined]


def _on_this_path(code: str) -> str:
    return f"import sys; sys.path[:] = {sys.path!r}; {code}"
