"""Objects that settings name as `package.module:object`: what may not be named."""

import functools
import sys
from typing import Any

from .data import CallboardError


def refuse_standard_library(what: str, module: str, found: Any = None) -> None:
    """Refuses Python's own modules, and objects of theirs that another module holds.

    Settings may come from others, in a recipe or a run directory.  Nothing in the standard library is an agent, an
    environment or a network, and much of it runs whatever it is given (`os:system`).

    Args:
      what: is named, for the message, such as `agent 'os:system'`.
      module: the module's name.
      found: the object, if it has been looked up.

    Raises:
      CallboardError: it is of the standard library.
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
