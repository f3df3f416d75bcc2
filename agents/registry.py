"""Lookup of agents by name: built-in names, or `package.module:Class` for user-defined agents."""

import dataclasses
import difflib
import importlib

from ..errors import CallboardError
from ..named_objects import refuse_standard_library
from .agent import Agent
from .declared_settings import declared_settings

AGENTS = {
    "apex": "callboard.agents.apex:Apex",
    "impala": "callboard.agents.impala:Impala",
    "ppo": "callboard.agents.ppo:Ppo",
    "r2d2": "callboard.agents.r2d2:R2D2",
    "sac": "callboard.agents.sac:Sac",
}


def agent_class(name: str) -> type[Agent]:
    """Returns the `Agent` subclass with that name.

    Raises:
      CallboardError: the name is unknown (the message suggests the closest one), or is not that of an `Agent`.
    """
    module_name, _, class_name = _path(name).partition(":")
    refuse_standard_library(f"agent {name!r}", module_name)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:  # The last two for invalid module names: ":A" or ".a:B".
        raise CallboardError(f"agent {name!r} cannot be imported: {error}") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise CallboardError(f"{name!r} is not a subclass of callboard.agents.Agent")
    return found


def agent_settings(name: str) -> type:
    """Returns a dataclass with the fields and defaults of the agent with that name.

    For built-in agents this is not the agent's class itself, so that TensorFlow is not imported.

    Raises:
      CallboardError: as for `agent_class`, or the agent is not a dataclass.
    """
    declared = declared_settings(_path(name)) if name in AGENTS else None
    settings = declared or agent_class(name)
    if not dataclasses.is_dataclass(settings):
        raise CallboardError(f"the agent {name!r} must be a frozen dataclass")
    return settings


def agent_name(agent: Agent) -> str:
    """Returns the name under which `agent_class` finds the class of `agent`."""
    path = f"{type(agent).__module__}:{type(agent).__qualname__}"
    return next((name for name, known in AGENTS.items() if known == path), path)


def _path(name: str) -> str:
    path = AGENTS.get(name, name)
    if ":" not in path:
        near = difflib.get_close_matches(name, AGENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(AGENTS)}, or package.module:Class"
        raise CallboardError(f"unknown agent {name!r}: {hint}")
    return path
