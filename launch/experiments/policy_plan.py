"""Which policies a run has, which agents of the environment they may control, and the layout of each."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...agents.agent import Agent
from ...data import Layout
from ...environments import ONLY_AGENT
from ...environments.multi_agent.policy_slots import PolicyMapping, PolicySlots, parse_mapping, policy_slots
from ...errors import unknown
from ...specs import EnvironmentSpec
from .parts.acting_part import LayoutPart
from .parts.environment_part import PoliciesPart
from .policy_settings import SHARED, PolicySettings, Snapshots, TrainedPolicy, learning_policies


class Layouts(NamedTuple):
    """Facts about a run's environment that its nodes need, found by making it once."""

    whole: Layout
    """The layout of the run, without its record and state: that of the first policy that learns."""
    policies: Mapping[str, Layout]
    """The layout of each policy that learns."""
    agents: Mapping[str, EnvironmentSpec]
    """The spec of each agent of the environment."""


@dataclasses.dataclass(frozen=True)
class PolicyPlan:
    """The policies of a run; one without a name if its environment has one agent.

    Attributes:
      policies: all policies, by name.
      learning: those that learn.
      slots: the agents of the environment that each policy may control, and their common spec.
      mapping: chooses the policy of an agent for an episode.
    """

    policies: Mapping[str, PolicySettings]
    learning: Mapping[str, Agent]
    slots: Mapping[str, PolicySlots]
    mapping: PolicyMapping

    @property
    def saved(self) -> dict[str, TrainedPolicy]:
        """Policies loaded from other runs that play for some agent, by name."""
        playing = {name: self.policies[name] for name in self.slots}
        return {name: policy for name, policy in playing.items() if isinstance(policy, TrainedPolicy)}

    def layout(self, policy: str, whole: Layout) -> Layout:
        """Returns the layout of a policy, given the run's.  Its batches have a slot per environment and agent."""
        slots = self.slots[policy]
        count = len(slots.agents)
        return whole._replace(spec=slots.spec, envs_per_actor=whole.envs_per_actor * count, agents_per_env=count)

    def layout_in(self, experiment: LayoutPart, policy: str) -> Layout:
        """Returns the layout of a policy in an experiment with this plan."""
        return self.layout(policy, experiment.layout(self.slots[policy].spec))

    def acting_layout_in(self, experiment: LayoutPart, policy: str) -> Layout:
        """Returns that layout for acting only, see `LayoutPart.acting_layout`."""
        return self.layout(policy, experiment.acting_layout(self.slots[policy].spec))


class MemberMapping:
    """A mapping that replaces a policy with several members, snapshots, by one of them.

    Args:
      mapping: the mapping to policies.
      members: names of the members, by policy.
      choose: returns the member of a policy to play with, given a random generator.
    """

    def __init__(
        self,
        mapping: PolicyMapping,
        members: Mapping[str, Sequence[str]],
        choose: Callable[[str, np.random.Generator], str],
    ):
        self._mapping = mapping
        self._members = members
        self._choose = choose
        self.policies_of = {
            agent: tuple(member for name in names for member in members.get(name, (name,)))
            for agent, names in mapping.policies_of.items()
        }

    def __call__(self, agent: str, episode: int, rng: np.random.Generator) -> str:
        name = self._mapping(agent, episode, rng)
        return self._choose(name, rng) if name in self._members else name


def members_of(policies: Mapping[str, PolicySettings]) -> dict[str, list[str]]:
    """Returns the names of the members of the policies that are snapshots, by policy: `past/0`, `past/1`, ..."""
    return {
        name: [f"{name}/{number}" for number in range(policy.keep)]
        for name, policy in policies.items()
        if isinstance(policy, Snapshots)
    }


def make_plan(experiment: PoliciesPart, specs: Mapping[str, EnvironmentSpec], evaluation: bool = False) -> PolicyPlan:
    """Returns the plan of an experiment.

    Args:
      experiment: the experiment.
      specs: spec of each agent of the environment.
      evaluation: whether the mapping of evaluations is meant, not that of training.

    Raises:
      CallboardError: an agent has no policy, a policy no agent, a name is unknown, or the agents of a policy have
        different spaces.
    """
    policies = policies_of(experiment, specs)
    mapping = experiment.mapping
    if evaluation and experiment.evaluation_mapping is not None:
        mapping = experiment.evaluation_mapping
    # The mapping of evaluations may need others than that of training.
    named = _named_in(mapping)
    used = [name for name in policies if named is None or name in named] or list(policies)
    for name in named or ():
        if name not in policies:
            raise unknown("policy in the mapping", name, policies)
    parsed = parse_mapping(mapping, tuple(specs), {name: None for name in used}, specs)
    names = [name for name in used if any(name in of_agent for of_agent in parsed.policies_of.values())]
    learning = learning_policies(policies, experiment.trained)
    return PolicyPlan(policies, learning, policy_slots(names, tuple(specs), specs, parsed), parsed)


def policies_of(experiment: PoliciesPart, agents: Collection[str]) -> dict[str, PolicySettings]:
    """Returns the policies of an experiment by name; where it names none, one for all agents of its environment."""
    return dict(experiment.policies) or {ONLY_AGENT if ONLY_AGENT in agents else SHARED: experiment.agent}


def _named_in(mapping: Any) -> set[str] | None:
    """Returns the policies that a table names; None if the mapping is no table."""
    if not isinstance(mapping, Mapping):
        return None
    return {str(name) for choice in mapping.values() for name in (choice if isinstance(choice, Mapping) else [choice])}
