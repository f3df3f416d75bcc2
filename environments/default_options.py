"""The options of an environment with their defaults, for people who look at it."""

import dataclasses
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium

from ..settings.named_objects import import_object
from ..settings.setting_types import default_of
from .adapters.atari import AtariOptions
from .adapters.dm_control import DmControlOptions
from .adapters.minatar import MinAtarOptions
from .adapters.procgen import ProcgenOptions
from .minigrid import NAMES as MINIGRID_NAMES

OPTIONS: Mapping[str, type] = MappingProxyType(
    {
        "ale/": AtariOptions,
        "procgen:": ProcgenOptions,
        "minatar/": MinAtarOptions,
        "dm_control:": DmControlOptions,
    }
)
"""The options of the environments whose names begin so."""
_GIVEN = frozenset(("self", "seed", "seeds", "batch_size", "num_envs", "index", "actor", "env_config"))
"""Arguments of a factory that the user does not give."""


def default_options(name: Any) -> dict[str, Any]:
    """Returns the options of an environment that its library or its factory declares, with their defaults.

    Args:
      name: the name of one environment, which can be made, or its factory.
    """
    if not isinstance(name, str):
        return _of_function(name)
    for beginning, options in OPTIONS.items():
        if name.lower().startswith(beginning):
            return {field.name: default_of(field) for field in dataclasses.fields(options)}
    if name.startswith("bsuite:"):
        from bsuite import bsuite, sweep

        setting = name.removeprefix("bsuite:")
        create = bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[setting.partition("/")[0]]
        return {**_of_function(create), **sweep.SETTINGS[setting]}
    registered = gymnasium.registry.get(name.removeprefix("gymnasium:"))
    if registered is None:
        return _of_function(import_object("environment", name)) if ":" in name else {}
    entry = registered.entry_point
    made = import_object("environment", entry) if isinstance(entry, str) else entry
    own = {"fully_observed": False} if name.startswith(MINIGRID_NAMES) else {}
    return {**own, "max_episode_steps": registered.max_episode_steps, **_of_function(made), **registered.kwargs}


def _of_function(function: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {
        one.name: one.default
        for one in parameters
        if one.default is not one.empty and one.name not in _GIVEN and one.kind is not one.VAR_KEYWORD
    }
