"""Imports of a worker: the modules, environments and wrappers that settings name.

This module is part of the program of workers (see `worker_process`): Python 3.9 and NumPy are all that it needs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...settings.object_origins import object_origin
from .stepping import Refused, message_of_error

_ADAPTED = ("ale", "envpool", "gymnasium", "pettingzoo")
"""Prefixes of names that are no modules."""


def imported(module: str, package: str = "", is_named: bool = False) -> Any:
    """Imports a module; refuses if it, or what it imports, cannot be.

    Args:
      module: its name.
      package: the package that has it, by default the one of its name.
      is_named: whether a setting names the module, which may be the user's own.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if is_named and missing and f"{module}.".startswith(f"{missing}."):
            raise Refused("no_module", module=missing) from error
        if missing and "." not in missing:
            raise Refused("missing", package=package or missing, reason=message_of_error(error)) from error
        raise Refused("no_import", reason=message_of_error(error)) from error
    except ImportError as error:  # Something is there, and fails.
        raise Refused("no_import", reason=message_of_error(error)) from error


def named_object(name: str, paths: Sequence[str]) -> Any:
    """Returns what a setting names as `package.module:name`; None if the module has no such object.

    Args:
      name: the setting.
      paths: where the user's own modules are.  Python searches them once a setting has named one of these modules.
    """
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in module.split(".")):
        raise Refused("no_module", module=module)
    with contextlib.suppress(ImportError):
        importlib.import_module("gymnasium")  # Before directories that may hold a module of this name.
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        sys.path += [path for path in paths if path not in sys.path]
        importlib.invalidate_caches()
    found = imported(module, is_named=True)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def check_object(kind: str, name: str) -> None:
    """Refuses a setting `package.module:name` whose module, which has been imported, has no such object."""
    module, _, path = name.partition(":")
    if path.replace(".", "").isidentifier():
        known = [key for key, one in vars(sys.modules[module]).items() if callable(one) and not key.startswith("_")]
        raise Refused("no_object", what=kind, name=name, known=known)


def named_origins(request: Mapping[str, Any]) -> list[Any]:
    """Returns what settings name as `package.module:name`: the kind, the name, and the origin of each object."""
    module, _, path = request["env"].partition(":")
    named = [("environment", request["env"])] if path and module not in _ADAPTED else []
    named += [("wrapper", name) for name, _ in request["wrappers"] if ":" in name]
    objects = [(kind, name, named_object(name, request["paths"])) for kind, name in named]
    return [(kind, name, object_origin(name, found)) for kind, name, found in objects if found is not None]


def wrapper_kind(name: str, paths: Sequence[str]) -> Any:
    """Returns the wrapper of Gymnasium that a setting names."""
    wrappers = imported("gymnasium.wrappers", "gymnasium")
    known = [one for one in wrappers.__all__ if one != "vector"]
    try:
        kind = named_object(name, paths) if ":" in name else getattr(wrappers, name) if name in known else None
    except ImportError as error:
        raise Refused("cannot_wrap", name=name, reason=message_of_error(error)) from error
    if kind is None:
        check_object("wrapper", name)
        raise Refused("unknown_wrapper", name=name, known=known)
    if not (isinstance(kind, type) and issubclass(kind, sys.modules["gymnasium"].Wrapper)):
        raise Refused("no_wrapper", name=name)
    return kind


def check_wrappers(request: Mapping[str, Any]) -> None:
    for name, arguments in request["wrappers"]:
        if name != "OldGym":
            try:
                inspect.signature(wrapper_kind(name, request["paths"])).bind(None, **arguments)
            except TypeError as error:
                raise Refused("wrapper_arguments", name=name, reason=message_of_error(error)) from error


def reward_wrappers() -> tuple[Any, ...]:
    gymnasium = sys.modules["gymnasium"]
    return tuple(filter(None, (gymnasium.RewardWrapper, getattr(gymnasium.wrappers, "NormalizeReward", None))))


def spawn_on_this_path() -> None:
    """Lets interpreters that `multiprocessing` starts search what this one does, and not the working directory."""
    util: Any = importlib.import_module("multiprocessing.util")
    spawn = util.spawnv_passfds

    def start(path: Any, arguments: Any, descriptors: Any) -> Any:
        code = list(arguments).index("-c") + 1
        on_this_path = f"import sys; sys.path[:] = {sys.path!r}; {arguments[code]}"
        return spawn(path, [*arguments[:code], on_this_path, *arguments[code + 1 :]], descriptors)

    util.spawnv_passfds = start
