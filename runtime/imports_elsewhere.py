"""Imports of libraries that read the working directory while they are imported, which may belong to somebody else.

Glfw loads `libglfw.so` and starts Python there, which would take modules of the directory for libraries; Matplotlib
reads `matplotlibrc`.  They are imported as if the working directory were `/`.

Workers under other interpreters have this module too: it imports nothing of this library.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

_READ_DIRECTORY = {"glfw", "matplotlib"}
_CLONE_FS = 0x200


class _ElsewhereFinder(importlib.abc.MetaPathFinder):
    """Finds these libraries as Python does, and lets their code run elsewhere."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _READ_DIRECTORY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _elsewhere(spec.loader.exec_module)  # type: ignore
        return spec


def import_elsewhere() -> None:
    """Lets these libraries be imported in this way, from now on and in this process."""
    if not any(isinstance(finder, _ElsewhereFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ElsewhereFinder())


def _elsewhere(function: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(module: Any) -> None:
        with _in_root():
            function(module)

    return call


@contextlib.contextmanager
def _in_root() -> Iterator[None]:
    """Changes the working directory of this thread alone, where the kernel lets it have one of its own."""
    import ctypes  # Not earlier: `python -m callboard` still searches the working directory when this module is read.

    ctypes.CDLL(None).unshare(_CLONE_FS)
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)
