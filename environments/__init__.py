"""Environments: the batched interface, and adapters for Gymnasium, dm_env, Atari, MinAtar and Procgen."""

from .batched import BatchedEnvironment, EnvironmentWrapper
from .dm_env_adapter import DmEnvBatch
from .factory import (
    Environment,
    check,
    check_hooks,
    environment_names,
    environment_text,
    for_evaluation,
    has_unseen_levels,
    make,
    spec,
)
from .gymnasium_adapter import GymnasiumBatch, GymnasiumVectorBatch
from .mixtures import WeightedEnvironment, environment_of_slots, read_mixture
from .names import names
from .python_factory import named_factory
from .seeding import environment_seeds

__all__ = [
    "BatchedEnvironment",
    "DmEnvBatch",
    "Environment",
    "EnvironmentWrapper",
    "GymnasiumBatch",
    "GymnasiumVectorBatch",
    "WeightedEnvironment",
    "check",
    "check_hooks",
    "environment_names",
    "environment_of_slots",
    "environment_seeds",
    "environment_text",
    "for_evaluation",
    "has_unseen_levels",
    "make",
    "named_factory",
    "names",
    "read_mixture",
    "spec",
]
