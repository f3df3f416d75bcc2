"""Lookup of agents by name: built-in names, or `package.module:Class` for user-defined agents."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import CallboardError
from ..settings.named_objects import import_object
from ..settings.setting_types import NAME, converted, shown
from .agent import Agent, check_agent_class
from .agent_names import agent_path
from .offline.bc_settings import AWRSettings, BCSettings
from .offline.iql_settings import IQLSettings
from .settings.a2c_settings import A2CSettings, A3CSettings
from .settings.apex_settings import ApexSettings
from .settings.d4pg_settings import D4PGSettings, DMPOSettings
from .settings.impala_settings import AppoSettings, ImpalaSettings
from .settings.ppo_settings import PpoSettings, PqnSettings
from .settings.qmix_settings import QmixSettings, VdnSettings
from .settings.r2d2_settings import R2D2Settings
from .settings.sac_settings import CQLSettings, DrQSettings, SacSettings
from .settings.td3_settings import TD3BCSettings, TD3Settings

_SETTINGS: Mapping[str, type] = {
    "a2c": A2CSettings,
    "a3c": A3CSettings,
    "apex": ApexSettings,
    "appo": AppoSettings,
    "awr": AWRSettings,
    "bc": BCSettings,
    "cql": CQLSettings,
    "d4pg": D4PGSettings,
    "dmpo": DMPOSettings,
    "drq": DrQSettings,
    "impala": ImpalaSettings,
    "iql": IQLSettings,
    "ppo": PpoSettings,
    "pqn": PqnSettings,
    "qmix": QmixSettings,
    "r2d2": R2D2Settings,
    "sac": SacSettings,
    "td3_bc": TD3BCSettings,
    "td3": TD3Settings,
    "vdn": VdnSettings,
}


def agent_class(name: str) -> type[Agent]:
    """Returns the `Agent` subclass with that name.

    Raises:
      CallboardError: the name is unknown (the message suggests the closest one), or is not that of an `Agent`.
    """
    found = import_object("agent", agent_path(name))
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise CallboardError(f"{name!r} is not a subclass of callboard.agents.Agent")
    return found


def agent_settings(name: str) -> type:
    """Returns a dataclass with the fields and defaults of the agent with that name.

    For built-in agents this is the base class of the agent with its hyperparameters, which does not import TensorFlow.

    Raises:
      CallboardError: as for `agent_class` and `check_agent_class`.
    """
    if name in _SETTINGS:
        return _SETTINGS[name]
    kind = agent_class(name)
    check_agent_class(kind)
    return kind


def made_agent(agent: Any) -> Agent:
    """Returns the agent that is given as itself, as in YAML, or as its class or its name with default hyperparameters.

    Raises:
      CallboardError: there is no such agent, it is something else, or a hyperparameter has no default.
    """
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, Mapping) and isinstance(agent.get(NAME), str):
        return converted("agent", {key: value for key, value in agent.items() if key != NAME}, agent_class(agent[NAME]))
    kind = agent_class(agent) if isinstance(agent, str) else agent
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise CallboardError(f"agent must be an agent such as Ppo(), its class or its name, not {shown(agent)}")
    fields: tuple[Any, ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    missing = dataclasses.MISSING
    needed = [one.name for one in fields if one.init and one.default is missing and one.default_factory is missing]
    if needed:
        raise CallboardError(f"{needed[0]} of {kind.__name__} has no default; write {kind.__name__}({needed[0]}=...)")
    return kind()
