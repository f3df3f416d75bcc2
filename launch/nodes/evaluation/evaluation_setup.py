"""The environments of evaluations and videos, together with the policies that act in them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from ....agents.acting import BatchPolicy, CompiledPolicy, policy_seed
from ....agents.agent import Policy
from ....agents.policies.joint_policy import JointPolicy, UniformPolicy
from ....data import Layout, Nest, Timestep
from ....environments import BatchedEnvironment
from ....environments.multi_agent.joint_batch import JointBatch
from ...experiment import Experiment
from ...experiments.policy_plan import MemberMapping, PolicyPlan, members_of
from ...experiments.policy_settings import RandomPolicy
from ..acting.acting_setup import make_environments, make_joint_environments


class EvaluationSetup(Protocol):
    """Makes environments of evaluations, with the policy that acts in them."""

    def make(self, experiment: Experiment, count: int) -> tuple[BatchedEnvironment, BatchPolicy]:
        """Returns a batch of environments, and the policy of all of its slots.

        Args:
          experiment: the experiment, perhaps with other options of the environment.
          count: number of environments.
        """


@dataclasses.dataclass(frozen=True)
class OnePolicySetup:
    """The policy of a run whose environment has one agent.

    Attributes:
      policy: the policy.
      layout: layout for acting.
    """

    policy: Policy
    layout: Layout

    def make(self, experiment: Experiment, count: int) -> tuple[BatchedEnvironment, BatchPolicy]:
        environment = make_environments(experiment, "evaluator", 0, count)
        return environment, CompiledPolicy(self.policy, self.layout, np.arange(count), experiment.seed)


@dataclasses.dataclass(frozen=True)
class SeveralPoliciesSetup:
    """The policies of a run whose environment has several agents.

    Attributes:
      plan: the policies and the mapping of evaluations.
      policies: policies with weights and their layouts, by name; of snapshots, by the names of the members.
      choose: returns the member of a policy of snapshots to play with, see `MemberMapping`.
    """

    plan: PolicyPlan
    policies: Mapping[str, tuple[Policy, Layout]]
    choose: Callable[[str, np.random.Generator], str]

    def make(self, experiment: Experiment, count: int) -> tuple[JointBatch, JointPolicy]:
        acting = acting_policies(self.plan, self.policies, experiment.seed, 0, count)
        mapping = MemberMapping(self.plan.mapping, members_of(self.plan.policies), self.choose)
        learning = list(self.plan.learning)
        environments = make_joint_environments(experiment, "evaluator", 0, count, mapping, list(acting), learning)
        return environments, JointPolicy(environments, acting)


@dataclasses.dataclass(frozen=True)
class EnvironmentsOnly:
    """Makes the environments of evaluations, to look at them before they are stepped.

    Attributes:
      plan: the policies and the mapping of evaluations; None if the environment has one agent.
    """

    plan: PolicyPlan | None

    def make(self, experiment: Experiment, count: int) -> tuple[BatchedEnvironment, BatchPolicy]:
        plan = self.plan
        if plan is None:
            return make_environments(experiment, "evaluator", 0, count), self._act
        members = members_of(plan.policies)
        mapping = MemberMapping(plan.mapping, members, lambda policy, rng: members[policy][0])
        names = [member for name in plan.slots for member in members.get(name, (name,))]
        return make_joint_environments(experiment, "evaluator", 0, count, mapping, names, names), self._act

    def _act(self, timestep: Timestep) -> tuple[Nest, Nest]:
        raise AssertionError("these environments are not stepped")


def acting_policies(
    plan: PolicyPlan,
    policies: Mapping[str, tuple[Policy, Layout]],
    seed: int,
    first_env: int,
    envs: int,
    incarnation: int = 0,
) -> dict[str, BatchPolicy]:
    """Compiles policies for their slots in a batch of environments with several agents.

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
