"""Environments: the batched interface, and adapters for Gymnasium, dm_env, Atari, MinAtar and Procgen."""

from .adapters.dm_env_adapter import DmEnvBatch
from .adapters.gymnasium_batch import GymnasiumBatch
from .adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from .adapters.gymnasium_wrappers import named_wrappers
from .batches.batched import BatchedEnvironment, EnvironmentWrapper
from .batches.seeding import environment_seeds
from .checks.episode_limits import unending_advice
from .factory import (
    Environment,
    check,
    check_hooks,
    environment_names,
    environment_text,
    for_evaluation,
    has_unseen_levels,
    is_of_library,
    made_to_draw,
    make,
    spec,
)
from .mixtures import WeightedEnvironment, environment_of_slots, read_mixture
from .multi_agent.multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper
from .multi_agent.multi_agent_factory import agent_specs, check_agents_tasks, is_multi_agent, make_multi_agent
from .multi_agent.policy_batches import PolicyBatches, make_policy_batches
from .multi_agent.policy_slots import ONLY_AGENT, MultiAgentEpisode, PolicyMapping, PolicySlots, parse_mapping
from .names import names
from .python_factory import named_factory, register_environment

__all__ = [
    "ONLY_AGENT",
    "AgentStep",
    "BatchedEnvironment",
    "DmEnvBatch",
    "Environment",
    "EnvironmentWrapper",
    "GymnasiumBatch",
    "GymnasiumVectorBatch",
    "MultiAgentEnvironment",
    "MultiAgentEpisode",
    "MultiAgentWrapper",
    "PolicyBatches",
    "PolicyMapping",
    "PolicySlots",
    "WeightedEnvironment",
    "agent_specs",
    "check",
    "check_agents_tasks",
    "check_hooks",
    "environment_names",
    "environment_of_slots",
    "environment_seeds",
    "environment_text",
    "for_evaluation",
    "has_unseen_levels",
    "is_multi_agent",
    "is_of_library",
    "made_to_draw",
    "make",
    "make_multi_agent",
    "make_policy_batches",
    "named_factory",
    "named_wrappers",
    "names",
    "parse_mapping",
    "read_mixture",
    "register_environment",
    "spec",
    "unending_advice",
]
