"""Names of all available environments."""

import contextlib
import importlib.util

import gymnasium
from gymnasium.envs.registration import load_env_creator

from .adapters.atari import atari_ids
from .adapters.behavior_suite import bsuite_names
from .adapters.dm_control import dm_control_tasks
from .adapters.envpool import envpool_names
from .adapters.minatar import minatar_ids
from .adapters.pettingzoo_names import pettingzoo_names
from .adapters.procgen import GAMES
from .gymnasium_registry import is_only_refused, missing_package


def names() -> list[str]:
    """Returns the sorted names of all environments in installed packages.

    Only the newest version of an id is listed, although older ones can be made too.  Ids that Gymnasium registers only
    to raise an error are omitted.
    """
    atari = set(atari_ids())
    newest: dict[str, int] = {}
    for spec in gymnasium.registry.values():
        family = spec.id.rpartition("-v")[0] or spec.id
        newest[family] = max(newest.get(family, 0), spec.version or 0)
    ids = [
        spec.id
        for spec in gymnasium.registry.values()
        if (spec.version or 0) == newest[spec.id.rpartition("-v")[0] or spec.id] and _can_be_loaded(spec)
    ]
    # ale-py also registers its games under older names.
    ids = [id for id in ids if id in atari or not _is_of_ale(id)]
    minatar = minatar_ids() if importlib.util.find_spec("minatar") else []
    procgen = [f"procgen:{game}" for game in GAMES] if importlib.util.find_spec("procgen") else []
    return sorted({*ids, *atari, *minatar, *procgen, *pettingzoo_names(), *_of_optional_libraries()})


def _of_optional_libraries() -> list[str]:
    """Returns the names of environments of libraries that list them, which are imported for that."""
    found: list[str] = []
    for beginning, list_names in (
        ("dm_control:", dm_control_tasks),
        ("bsuite:", bsuite_names),
        ("envpool:", envpool_names),
    ):
        with contextlib.suppress(ImportError):
            found += [beginning + name for name in list_names()]
    return found


def _can_be_loaded(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    if spec.entry_point is None or callable(spec.entry_point):
        return spec.entry_point is not None and not is_only_refused(spec)
    # An incomplete package may raise anything.
    with contextlib.suppress(Exception):
        load_env_creator(spec.entry_point)
        return missing_package(spec) is None
    return False


def _is_of_ale(name: str) -> bool:
    return str(gymnasium.registry[name].entry_point).startswith("ale_py")
