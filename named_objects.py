"""Objects that settings name as `package.module:name`."""

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

from .errors import CallboardError, suggestion


def import_object(kind: str, path: str) -> Any:
    """Imports the object that a setting names as `package.module:name`, or `package.module:Class.name`.

    Args:
      kind: what the object is meant to be, such as `agent`, for messages.
      path: the setting.

    Raises:
      CallboardError: as in `import_module`; or the module has no such object, or it belongs to the standard library.
    """
    module_name, _, name = path.partition(":")
    module = import_module(kind, path, module_name)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = suggestion(name, public, f"define it in {module_name}, or name another object")
        raise CallboardError(f"unknown {kind} {path!r}; module {module_name!r} has no {name!r}, {hint}")
    refuse_standard_library(kind, path, module_name, found)
    return found


def import_module(kind: str, setting: str, module: str) -> ModuleType:
    """Imports the module that `setting` names.

    Raises:
      CallboardError: the module, or one that it imports, does not exist, or it belongs to the standard library.  Other
        errors of the module propagate with their traceback, for its author.
    """
    refuse_standard_library(kind, setting, module)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = " ".join(str(error).split())
    except (ValueError, TypeError):  # Raised for names such as "" and ".a".
        if module and not module.startswith("."):
            raise
        reason = f"{module!r} is not the name of a module"
    raise CallboardError(f"{kind} {setting!r} cannot be imported: {reason}")


def refuse_standard_library(kind: str, setting: str, module: str, found: Any = None) -> None:
    """Rejects standard library modules, and standard library objects that another module re-exports.

    A recipe or a run directory may come from somebody else.  Nothing in the standard library is an agent, an
    environment or a network, and much of it runs arbitrary code (`os:system`).

    Args:
      kind: what the object is meant to be, for the message.
      setting: the setting that names it, such as `os:system`.
      module: name of the module.
      found: the object, if it has already been looked up.

    Raises:
      CallboardError: if the object belongs to the standard library.
    """
    while isinstance(found, functools.partial):
        found = found.func
    owner = getattr(found, "__module__", None)
    for name in (module, owner):
        if isinstance(name, str) and name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
            raise CallboardError(
                f"{kind} {setting!r} is refused: {name.partition('.')[0]!r} is part of Python's standard library, "
                "which contains nothing that a run can use; name a module of your own"
            )
