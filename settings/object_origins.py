"""Where an object comes from, as plain data, by which `named_objects` decides whether a setting may name it.

Workers under other interpreters have this module too: it needs Python 3.9 alone, and nothing of this library.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from types import ModuleType
from typing import Any

MARK = "__callboard_nameable__"


def object_origin(setting: str, found: Any) -> dict[str, Any]:
    """Returns where an object that a setting names as `package.module:name` comes from, and what it is."""
    is_partial = isinstance(found, functools.partial)
    while isinstance(found, functools.partial):
        found = found.func
    owner = owner_of(found)
    classes = found.__mro__ if isinstance(found, type) else type(found).__mro__
    return {
        "callable": callable(found),
        "partial": is_partial,
        "marked": bool(getattr(found, MARK, False)),
        "owner": owner,
        "classes": [[str(one.__module__).partition(".")[0], one.__name__] for one in classes],
        "files": {module: module_file(module) for module in (owner, setting.partition(":")[0])},
        "installed": list(_installed_directories()),
    }


def module_file(module: str) -> str | None:
    """Returns the file of an imported module, or of its package."""
    found = sys.modules.get(module) or sys.modules.get(module.partition(".")[0])
    return getattr(found, "__file__", None)


def is_installed(file: str) -> bool:
    """Returns whether a file belongs to an installed package, or to Python itself, rather than to a project."""
    return os.path.abspath(file).startswith(_installed_directories())


def owner_of(found: Any) -> str:
    """Returns the name of the module that defines an object, or its class."""
    instance = getattr(found, "__self__", None)
    if instance is not None and not isinstance(instance, ModuleType):
        # A bound method: of the class that defines the method.
        found = getattr(found, "__func__", type(instance))
    owner = getattr(found, "__module__", None)
    return owner if isinstance(owner, str) else type(found).__module__


@functools.cache
def _installed_directories() -> tuple[str, ...]:
    paths: list[Any] = [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()]
    # The prefix is where scripts and data are; a project may be in it.
    prefixes = {sys.prefix, sys.base_prefix, sysconfig.get_path("data")}
    return tuple(os.path.join(path, "") for path in sorted({*paths} - prefixes))
