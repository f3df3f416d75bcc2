"""Environments: one batched interface, and adapters to what others made."""

from .batched import BatchedEnvironment
from .dm_env_adapter import DmEnvBatch
from .factory import check, evaluation_options, has_unseen_levels, make, spec
from .gymnasium_adapter import GymnasiumBatch, GymnasiumVectorBatch
from .names import names
from .seeding import environment_seeds

__all__ = [
    "BatchedEnvironment",
    "DmEnvBatch",
    "GymnasiumBatch",
    "GymnasiumVectorBatch",
    "check",
    "environment_seeds",
    "evaluation_options",
    "has_unseen_levels",
    "make",
    "names",
    "spec",
]
