"""Compiled policies for the slots of a node or tool that acts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....agents.agent import Mode, Policy
from ....agents.policies.acting import BatchPolicy, CompiledPolicy, policy_seed
from ....agents.policies.array_policy import ArrayPolicy
from ....agents.policies.joint_policy import UniformPolicy
from ....data import Layout
from ...experiments.parts.acting_part import LayoutPart
from ...experiments.policy_plan import PolicyPlan, members_of
from ...experiments.policy_settings import RandomPolicy


def acting_policies(
    plan: PolicyPlan,
    policies: Mapping[str, tuple[Policy, Layout]],
    seed: int,
    first_env: int,
    envs: int,
    incarnation: int = 0,
) -> dict[str, BatchPolicy]:
    """Compiles policies for their slots in a batch of environments.

    Args:
      plan: the plan of the run.
      policies: policies with their layouts, by name; of snapshots, by the names of the members.
      seed: the run's seed.
      first_env: index of the first environment among those of the run.
      envs: number of environments.
      incarnation: number of earlier incarnations of the node.

    Returns:
      Those policies, and the random ones.
    """
    members = members_of(plan.policies)
    acting: dict[str, BatchPolicy] = {}
    for name, slots in plan.slots.items():
        first, count = first_env * len(slots.agents), envs * len(slots.agents)
        if isinstance(plan.policies[name], RandomPolicy):
            acting[name] = UniformPolicy(slots.spec, count, policy_seed(seed, first, incarnation))
        for member in members.get(name, (name,)):
            if member in policies:
                policy, layout = policies[member]
                acting[member] = CompiledPolicy(policy, layout, np.arange(first, first + count), seed, incarnation)
    return acting


def compile_policy(
    experiment: LayoutPart,
    layout: Layout,
    networks: Any,
    mode: Mode,
    first_slot: int,
    count: int,
    incarnation: int = 0,
    arrays: bool = False,
) -> CompiledPolicy:
    """Compiles the agent's policy for slots `first_slot` to `first_slot + count`, for one incarnation of a node.

    With `arrays`, NumPy computes its actions where it can, see `ArrayPolicy`.
    """
    policy = experiment.agent.make_policy(networks, mode)
    slots = np.arange(first_slot, first_slot + count)
    return (ArrayPolicy if arrays else CompiledPolicy)(policy, layout, slots, experiment.seed, incarnation)
