"""The names of all environments that can be made here."""

import contextlib
import importlib.util

import gymnasium
from gymnasium.envs.registration import load_env_creator

from .atari import atari_ids
from .gymnasium_registry import is_only_refused
from .minatar import minatar_ids
from .procgen import GAMES


def names() -> list[str]:
    """Names of environments whose packages are installed, in order: Gymnasium's, Atari's, MinAtar's and Procgen's.

    Of an id with several versions only the newest is among them, though older ones can be made as well.  Ids that
    Gymnasium registers only to refuse them are left out.
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
    # ale-py registers its games under older names, too.
    ids = [id for id in ids if id in atari or not _is_of_ale(id)]
    minatar = minatar_ids() if importlib.util.find_spec("minatar") else []
    procgen = [f"procgen:{game}" for game in GAMES] if importlib.util.find_spec("procgen") else []
    return sorted({*ids, *atari, *minatar, *procgen})


def _can_be_loaded(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    if spec.entry_point is None or callable(spec.entry_point):
        return spec.entry_point is not None and not is_only_refused(spec)
    # Whatever a package that is half there raises.
    with contextlib.suppress(Exception):
        load_env_creator(spec.entry_point)
        return _has_packages(str(spec.entry_point))
    return False


def _has_packages(entry_point: str) -> bool:
    """Whether those packages are there that Gymnasium's modules look for only when an environment is made."""
    needed = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
    return all(importlib.util.find_spec(package) for start, package in needed.items() if entry_point.startswith(start))


def _is_of_ale(name: str) -> bool:
    return str(gymnasium.registry[name].entry_point).startswith("ale_py")
