"""Restrictions on the objects that settings may name as `package.module:object`."""

import functools
import sys
from typing import Any

from .errors import CallboardError


def refuse_standard_library(what: str, module: str, found: Any = None) -> None:
    """Rejects standard library modules, and standard library objects that another module re-exports.

    A recipe or a run directory may come from somebody else.  Nothing in the standard library is an agent, an
    environment or a network, and much of it runs arbitrary code (`os:system`).

    Args:
      what: description of the object for the message, such as `agent 'os:system'`.
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
                f"{what} is refused: {name.partition('.')[0]!r} is of Python's standard library, which has nothing "
                "that a run could use; name a module of yours"
            )
