"""PettingZoo environments by name, such as `pettingzoo:classic.connect_four_v3`."""

import importlib
import importlib.util
import pathlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from ..batches.user_errors import (
    REFUSALS,
    creation_errors,
    keywords,
    needs_package,
    unknown_environment,
    unknown_option,
    user_errors,
)

PREFIX = "pettingzoo:"

# The packages that families of environments are in.  MPE has left PettingZoo for a package of its own.
_PACKAGES = {family: f"pettingzoo.{family}" for family in ("atari", "butterfly", "classic", "sisl")} | {"mpe": "mpe2"}


def pettingzoo_names() -> list[str]:
    """Returns the names of all environments in installed packages, such as `pettingzoo:mpe.simple_spread_v3`.

    Some need packages of their own.
    """
    found = []
    for family, package in _PACKAGES.items():
        for directory in _directories(package):
            files = (file.stem for file in directory.glob("*_v*.py"))
            found += [f"{PREFIX}{family}.{name}" for name in files if re.fullmatch(r"\w+_v\d+", name)]
    return sorted(found)


def check_pettingzoo(name: str) -> None:
    """Checks a name, without importing the environment, whose own packages may be missing.

    Raises:
      CallboardError: the name is unknown, or PettingZoo or the package of the family is not installed.
    """
    with needs_package(name, "pettingzoo", "callboard[pettingzoo]"):
        importlib.import_module("pettingzoo")
    known = pettingzoo_names()
    if name not in known:
        if name.startswith(f"{PREFIX}mpe.") and not _directories(_PACKAGES["mpe"]):
            with needs_package(name, "mpe2", "callboard[pettingzoo]"):
                importlib.import_module("mpe2")
        raise unknown_environment(name, [one.removeprefix(PREFIX) for one in known], _families(known), PREFIX)


def make_pettingzoo(name: str, options: Mapping[str, Any]) -> Any:
    """Makes an environment of PettingZoo, which `PettingZooEnvironment` adapts.

    Args:
      name: `pettingzoo:FAMILY.NAME`, where `pettingzoo.FAMILY.NAME` (`mpe2.NAME` for the family `mpe`) is the module.
      options: keyword arguments of the module's `parallel_env`, or `env` if it has none.

    Raises:
      CallboardError: the name or an option is unknown, or a package is not installed.
    """
    check_pettingzoo(name)
    family, _, module_name = name.removeprefix(PREFIX).partition(".")
    takes: list[str] = []
    with user_errors(name, options, lambda: takes), warnings.catch_warnings():
        # PettingZoo 1.27 prefers its registry, which older versions do not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(f"{_PACKAGES[family]}.{module_name}")
        takes, takes_others = keywords(getattr(module, "raw_env", module.env))
        for option in options:
            if option not in takes and not takes_others:
                raise unknown_option(name, option, takes)
        with creation_errors(name, *(REFUSALS if options else (AssertionError,))):
            return getattr(module, "parallel_env", module.env)(**options)


def _directories(package: str) -> list[pathlib.Path]:
    try:
        found = importlib.util.find_spec(package)
    except ImportError:
        return []
    return [pathlib.Path(place) for place in (found.submodule_search_locations or ())] if found else []


def _families(known: list[str]) -> str:
    families = sorted({name.removeprefix(PREFIX).partition(".")[0] for name in known})
    return f"the families are {', '.join(families)}"
