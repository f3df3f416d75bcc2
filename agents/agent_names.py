"""The names of agents, and where their classes are."""

from typing import Any

from ..errors import check_type, unknown

AGENTS = {
    "a2c": "callboard.agents.a2c:A2C",
    "a3c": "callboard.agents.a3c:A3C",
    "apex": "callboard.agents.apex:Apex",
    "appo": "callboard.agents.appo:Appo",
    "awr": "callboard.agents.offline.awr:AWR",
    "bc": "callboard.agents.offline.bc:BC",
    "cql": "callboard.agents.offline.cql:CQL",
    "d4pg": "callboard.agents.d4pg:D4PG",
    "dmpo": "callboard.agents.dmpo:DMPO",
    "drq": "callboard.agents.drq:DrQ",
    "impala": "callboard.agents.impala:Impala",
    "iql": "callboard.agents.offline.iql:IQL",
    "ppo": "callboard.agents.ppo:Ppo",
    "pqn": "callboard.agents.pqn:Pqn",
    "qmix": "callboard.agents.qmix:Qmix",
    "r2d2": "callboard.agents.r2d2:R2D2",
    "sac": "callboard.agents.sac:Sac",
    "td3_bc": "callboard.agents.offline.td3_bc:TD3BC",
    "td3": "callboard.agents.td3:TD3",
    "vdn": "callboard.agents.qmix:Vdn",
}


def agent_name(agent: Any) -> str:
    """Returns the name under which `registry.agent_class` finds the class of an agent."""
    path = f"{type(agent).__module__}:{type(agent).__qualname__}"
    return next((name for name, known in AGENTS.items() if known == path), path)


def agent_path(name: str) -> str:
    """Returns `package.module:Class` of the agent with that name.

    Raises:
      CallboardError: there is no agent of that name; the message suggests the closest one.
    """
    check_type("agent", name, str, "the name of an agent")
    path = AGENTS.get(name, name)
    if ":" not in path:
        raise unknown("agent", name, AGENTS, f"choose from {', '.join(AGENTS)}, or write package.module:Class")
    return path
