"""Agents by name: those that ship, and the user's own as `package.module:Class`."""

import difflib
import importlib

from ..data import CallboardError
from .agent import Agent

AGENTS = {
    "apex": "callboard.agents.apex:Apex",
    "impala": "callboard.agents.impala:Impala",
    "ppo": "callboard.agents.ppo:Ppo",
    "r2d2": "callboard.agents.r2d2:R2D2",
    "sac": "callboard.agents.sac:Sac",
}


def agent_class(name: str) -> type[Agent]:
    """The recipe with that name.

    Raises:
      CallboardError: if there is none, with the nearest name that there is.
    """
    path = AGENTS.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, AGENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(AGENTS)}, or package.module:Class"
        raise CallboardError(f"unknown agent {name!r}: {hint}")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:  # The last two: no module's name, such as ":A" or ".a:B".
        raise CallboardError(f"agent {name!r} cannot be imported: {error}") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise CallboardError(f"{name!r} is not a subclass of callboard.agents.Agent")
    return found


def agent_name(agent: Agent) -> str:
    """The name under which `agent_class` finds the class of `agent`."""
    path = f"{type(agent).__module__}:{type(agent).__qualname__}"
    return next((name for name, known in AGENTS.items() if known == path), path)
