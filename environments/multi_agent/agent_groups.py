"""Groups of agents that are presented as one agent each, for centralized critics and value mixing."""

from collections.abc import Mapping, Sequence

import numpy as np
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError
from ...specs import AGENT_INDEX, PRESENT, STATE, EnvironmentSpec
from ..batches import encoding
from ..batches.encoding import EnvironmentEncoding, Leaf
from ..batches.infos import NO_INFO
from .multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper, absent_observation
from .policy_slots import matching_agents

Groups = Mapping[str, str | Sequence[str]]
"""Patterns of the members of each group, by the group's name."""


class GroupedAgents(MultiAgentWrapper):
    """Presents groups of agents as one agent each; agents in no group stay as they are.

    A group observes a dictionary of its members' observations, with a further leaf `present`, float32 `[members]`: 1
    for members that act next.  It acts by a dictionary of its members' actions, of which those of absent members are
    ignored, and receives the sum of its members' rewards.  It is present while any member is.  What an absent member
    observes is zeros (as its `action_mask`, a mask in which action 0 is the only legal one).

    The group's part ends when no member is left: it terminated if the last members did, and was truncated if one of
    them was.  In that last observation, `present` is 1 for the members that were truncated, whose value a learner can
    bootstrap from.

    Args:
      environment: the environment.
      groups: patterns of the members, by the group's name.

    Raises:
      CallboardError: a pattern matches no agent, an agent is in two groups, or a name is taken.
    """

    def __init__(self, environment: MultiAgentEnvironment, groups: Groups):
        super().__init__(environment)
        self._members = _members(environment.agents, groups)
        group_of = {member: group for group, members in self._members.items() for member in members}
        # A group takes the place of its first member.
        self.agents = tuple(dict.fromkeys(group_of.get(agent, agent) for agent in environment.agents))
        self._group_of = group_of
        own = {group: _group_spec(members, environment.specs) for group, members in self._members.items()}
        self.specs = {agent: own.get(agent) or environment.specs[agent] for agent in self.agents}
        self._absent = {member: absent_observation(environment.specs[member], legal="first") for member in group_of}
        self._acting: set[str] = set()

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        return self._grouped(self._environment.reset(seed))

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        own_actions: dict[str, Nest] = {}
        for agent, action in actions.items():
            if agent in self._members:
                own_actions |= {member: action[member] for member in self._members[agent] if member in self._acting}
            else:
                own_actions[agent] = action
        return self._grouped(self._environment.step(own_actions))

    def _grouped(self, steps: Mapping[str, AgentStep]) -> dict[str, AgentStep]:
        is_over = self._environment.is_over
        ended = {agent for agent, step in steps.items() if step.terminated or step.truncated or is_over}
        self._acting = steps.keys() - ended
        found = {agent: step for agent, step in steps.items() if agent not in self._group_of}
        for group, members in self._members.items():
            here = {member: steps[member] for member in members if member in steps}
            if here:
                found[group] = self._group_step(members, here)
        return found

    def _group_step(self, members: Sequence[str], here: Mapping[str, AgentStep]) -> AgentStep:
        continues = any(member in self._acting for member in here)
        if continues:
            present = [member in self._acting for member in members]
        else:
            present = [member in here and not here[member].terminated for member in members]
        observation = {
            member: here[member].observation if member in here else self._absent[member] for member in members
        }
        terminated = not continues and not any(present)
        return AgentStep(
            observation={**observation, PRESENT: np.array(present, np.float32)},
            reward=sum(step.reward for step in here.values()),
            terminated=terminated,
            truncated=not continues and not terminated,
            info={member: step.info for member, step in here.items() if step.info} or NO_INFO,
        )


def _members(agents: Sequence[str], groups: Groups) -> dict[str, tuple[str, ...]]:
    """Returns the members of each group, in the order of `agents`."""
    group_of: dict[str, str] = {}
    for group, patterns in groups.items():
        if not patterns:
            raise CallboardError(f"agent_groups: {group!r} has no members; choose from {', '.join(agents)}")
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            for agent in matching_agents(str(pattern), agents, f"agent_groups: {group}"):
                if group_of.setdefault(agent, group) != group:
                    raise CallboardError(
                        f"agent {agent!r} is in the groups {group_of[agent]!r} and {group!r}: leave it out of one"
                    )
    for group in groups:
        if group in agents and group_of.get(group) != group:
            raise CallboardError(f"agent_groups: {group!r} is the name of an agent outside the group: rename the group")
    for member in group_of:
        if member in (PRESENT, STATE, AGENT_INDEX):
            raise CallboardError(
                f"agent_groups: an agent named {member!r} cannot be a member: a part of observations has that name"
            )
    return {group: tuple(agent for agent in agents if group_of.get(agent) == group) for group in groups}


def _group_spec(members: Sequence[str], agents: Mapping[str, EnvironmentSpec]) -> EnvironmentSpec:
    encodings = {member: encoding.encoding_of(agents[member]) for member in members}
    present = Leaf(specs.BoundedArray((len(members),), np.float32, 0.0, 1.0), np.dtype(np.float32))
    return EnvironmentEncoding(
        {**{member: own.observation for member, own in encodings.items()}, PRESENT: present},
        {member: own.action for member, own in encodings.items()},
    ).spec()
