"""Environments: the batched interface, and adapters for Gymnasium, dm_env, Atari, MinAtar and Procgen."""

from .batched import BatchedEnvironment, EnvironmentWrapper
from .dm_env_adapter import DmEnvBatch
from .factory import check, check_hooks, evaluation_options, has_unseen_levels, make, spec
from .gymnasium_adapter import GymnasiumBatch, GymnasiumVectorBatch
from .names import names
from .seeding import environment_seeds

__all__ = [
    "BatchedEnvironment",
    "DmEnvBatch",
    "EnvironmentWrapper",
    "GymnasiumBatch",
    "GymnasiumVectorBatch",
    "check",
    "check_hooks",
    "environment_seeds",
    "evaluation_options",
    "has_unseen_levels",
    "make",
    "names",
    "spec",
]
