"""Which policy plays for which agent: mappings of agents to policies, and the agents that a policy may control."""

import dataclasses
import fnmatch
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import CallboardError, anything_raised, one_line, suggestion, unknown
from ...settings.named_objects import import_object
from ...specs import EnvironmentSpec, describe
from ..batches.tasks import Task

ONLY_AGENT = ""
"""Name of the agent of an environment that has one, and of the policy that plays for it."""
_CALLS_TRIED, EPISODES_TRIED = 2000, 100
"""How often a function is called to see what it returns: so often over all agents, for so many episodes at least."""


class PolicyMapping(Protocol):
    """Chooses the policy of each agent for an episode."""

    @property
    def policies_of(self) -> Mapping[str, tuple[str, ...]]:
        """The policies that each agent may get."""

    def __call__(self, agent: str, episode: int, rng: np.random.Generator) -> str:
        """Returns the policy of an agent.

        Args:
          agent: name of the agent.
          episode: number of the episode in its environment, from 0.
          rng: generator of the environment.
        """


class MultiAgentEpisode(NamedTuple):
    """An episode of an environment with several agents that has ended."""

    env: int
    """Index of the environment in its batch."""
    length: int
    """Number of steps."""
    returns: dict[str, float]
    """Sum of rewards of each agent that appeared."""
    policies: dict[str, str]
    """The policy of each agent that appeared."""
    task: Task = None
    """The task that had last been set when the episode began."""


class PolicySlots(NamedTuple):
    """The agents that a policy may control in one environment."""

    agents: tuple[str, ...]
    """The agents, in the environment's order."""
    spec: EnvironmentSpec
    """The spec that they have in common."""


@dataclasses.dataclass(frozen=True)
class TableMapping:
    """Chooses the policy of each agent at random, by weight.

    Attributes:
      policies_of: the policies that each agent may get.
      weights_of: their probabilities, in the same order.
    """

    policies_of: Mapping[str, tuple[str, ...]]
    weights_of: Mapping[str, tuple[float, ...]]

    def __call__(self, agent: str, episode: int, rng: np.random.Generator) -> str:
        policies = self.policies_of[agent]
        if len(policies) == 1:
            return policies[0]
        return policies[int(rng.choice(len(policies), p=self.weights_of[agent]))]


@dataclasses.dataclass(frozen=True)
class FunctionMapping:
    """Chooses the policy of each agent by a function of the user.

    Attributes:
      policies_of: the policies that each agent may get.
      function: maps (agent, episode, rng) to the name of a policy.
    """

    policies_of: Mapping[str, tuple[str, ...]]
    function: Callable[[str, int, np.random.Generator], str]

    def __call__(self, agent: str, episode: int, rng: np.random.Generator) -> str:
        policy = self.function(agent, episode, rng)
        allowed = self.policies_of[agent]
        if policy not in allowed:
            raise CallboardError(
                f"the mapping gives agent {agent!r} the policy {policy!r} in episode {episode}; "
                + suggestion(str(policy), allowed)
            )
        return policy


def parse_mapping(
    mapping: Any,
    agents: Sequence[str],
    policies: Mapping[str, Sequence[str] | None],
    specs: Mapping[str, EnvironmentSpec] | None = None,
) -> TableMapping | FunctionMapping:
    """Returns the mapping of an environment's agents to policies that a setting describes.

    Args:
      mapping: a table from patterns of agents (as of file names: `*`, `?`, `[0-9]`) to a policy, or to a table of
        policies and weights, of which an agent's name decides, or the first pattern that matches; a function (agent,
        episode, rng) -> policy, or its name `package.module:function`; or None: a single policy plays for all agents,
        and otherwise each agent has the policy of its own name.
      agents: names of all agents.
      policies: the policies, each with patterns of the agents that it may play for; None for all agents.
      specs: specs of the agents.  With them, a function is tried for a number of episodes, and may then give a policy
        to agents with the spec of those that got it.

    Raises:
      CallboardError: an agent has no policy, no agent can get a policy, a policy or a pattern is unknown, the function
        fails, or the mapping is something else.
    """
    if not policies:
        raise CallboardError("there are no policies: name at least one")
    may_serve = {policy: _served(policy, patterns, agents) for policy, patterns in policies.items()}
    parsed: TableMapping | FunctionMapping
    if mapping is None:
        parsed = _default_mapping(agents, list(policies))
    elif isinstance(mapping, Mapping):
        parsed = _table_mapping(mapping, agents, list(policies))
    else:
        function = import_object("mapping", mapping) if isinstance(mapping, str) and ":" in mapping else mapping
        _check_function(mapping, function)
        served = {agent: tuple(policy for policy in policies if agent in may_serve[policy]) for agent in agents}
        parsed = FunctionMapping(served, function)
    for agent in agents:
        if not parsed.policies_of[agent]:
            raise CallboardError(f"agent {agent!r} has no policy: let the agents of a policy include it")
        for policy in parsed.policies_of[agent]:
            if agent not in may_serve[policy]:
                raise CallboardError(
                    f"the mapping gives agent {agent!r} the policy {policy!r}, which plays for "
                    f"{', '.join(policies[policy] or ()) or 'no agent'}: change the mapping, or the policy's agents"
                )
    used = {policy for names in parsed.policies_of.values() for policy in names}
    for policy in policies:
        if policy not in used:
            raise CallboardError(
                f"no agent can get the policy {policy!r}: let the mapping name it for one of {', '.join(agents)}, or "
                "leave it out"
            )
    if specs and isinstance(parsed, FunctionMapping):
        agents_of = _agents_tried(mapping, parsed, agents)
        return FunctionMapping(_by_spec(parsed.policies_of, agents_of, specs), parsed.function)
    return parsed


def policy_slots(
    policies: Sequence[str], agents: Sequence[str], specs: Mapping[str, EnvironmentSpec], mapping: PolicyMapping
) -> dict[str, PolicySlots]:
    """Returns the agents that each policy may control, with their common spec.

    Args:
      policies: names of the policies, each of which some agent may get.
      agents: names of all agents, in the environment's order.
      specs: their specs.
      mapping: the policies that each agent may get.

    Raises:
      CallboardError: two agents of a policy have different specs.
    """
    found: dict[str, PolicySlots] = {}
    for policy in policies:
        own = tuple(agent for agent in agents if policy in mapping.policies_of[agent])
        for agent in own[1:]:
            if specs[agent] != specs[own[0]]:
                texts = [f"{describe(specs[one].observation)} with {describe(specs[one].action)}" for one in own]
                first, other = texts[0], texts[own.index(agent)]
                how = f"{first}, and {other}" if first != other else "the bounds, dtypes or names of parts differ"
                raise CallboardError(
                    f"policy {policy!r} cannot play for both {own[0]!r} and {agent!r}, whose spaces differ: {how}; "
                    "name a policy for each, or set agent_padding"
                )
        found[policy] = PolicySlots(own, specs[own[0]])
    return found


def matching_agents(pattern: str, agents: Sequence[str], where: str) -> tuple[str, ...]:
    """Returns the agents whose names match a pattern such as `agent_*`; `where` names the setting, for messages.

    Raises:
      CallboardError: there is none.
    """
    matched = tuple(agent for agent in agents if fnmatch.fnmatchcase(agent, pattern))
    if not matched:
        raise CallboardError(
            f"{where}: no agent matches {pattern!r}; {suggestion(pattern, agents, f'the agents are {_listed(agents)}')}"
        )
    return matched


def _listed(agents: Sequence[str]) -> str:
    """Returns the names of agents for a message, at most ten."""
    return ", ".join(agents) if len(agents) <= 10 else f"{', '.join(agents[:9])} and {len(agents) - 9} more"


def _served(policy: str, patterns: Sequence[str] | None, agents: Sequence[str]) -> set[str]:
    if patterns is None:
        return set(agents)
    if isinstance(patterns, str):
        patterns = [patterns]
    return {agent for pattern in patterns for agent in matching_agents(pattern, agents, f"agents of policy {policy!r}")}


def _default_mapping(agents: Sequence[str], policies: Sequence[str]) -> TableMapping:
    if len(policies) > 1:
        for agent in agents:
            if agent not in policies:
                raise CallboardError(
                    f"agent {agent!r} has no policy: name a policy {agent!r}, or give a mapping such as "
                    f"{{'{agent}': '{policies[0]}'}}"
                )
    own = {agent: (policies[0] if len(policies) == 1 else agent,) for agent in agents}
    return TableMapping(own, {agent: (1.0,) for agent in agents})


def _table_mapping(table: Mapping[Any, Any], agents: Sequence[str], policies: Sequence[str]) -> TableMapping:
    weights: dict[str, dict[str, float]] = {}
    # The name of an agent decides before any pattern.
    for pattern, choice in sorted(table.items(), key=lambda entry: str(entry[0]) not in agents):
        shares = dict(choice) if isinstance(choice, Mapping) else {choice: 1.0}
        if not shares:
            raise CallboardError(f"mapping: {pattern!r} names no policy; choose from {', '.join(policies)}")
        for policy, weight in shares.items():
            if policy not in policies:
                raise unknown(f"policy in the mapping of {pattern!r}:", policy, policies)
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not (number and math.isfinite(weight) and weight > 0):
                raise CallboardError(
                    f"mapping: the weight of policy {policy!r} for {pattern!r} is {weight!r}: give a number above 0"
                )
        for agent in matching_agents(str(pattern), agents, "mapping"):
            weights.setdefault(agent, shares)
    for agent in agents:
        if agent not in weights:
            raise CallboardError(f"agent {agent!r} has no policy: add a pattern for it to the mapping, such as '*'")
    return TableMapping(
        {agent: tuple(shares) for agent, shares in weights.items()},
        {agent: tuple(float(w) / sum(shares.values()) for w in shares.values()) for agent, shares in weights.items()},
    )


def _agents_tried(mapping: Any, function: FunctionMapping, agents: Sequence[str]) -> dict[str, list[str]]:
    """Returns the agents that get each policy in a number of episodes."""
    rng = np.random.default_rng(0)
    found: dict[str, list[str]] = {}
    for episode in range(max(EPISODES_TRIED, _CALLS_TRIED // len(agents))):
        for agent in agents:
            try:
                policy = function(agent, episode, rng)
            except CallboardError:
                raise
            except anything_raised() as error:
                raise CallboardError(
                    f"mapping {mapping!r} fails for agent {agent!r} in episode {episode}: {one_line(error)}"
                ) from error
            if agent not in found.setdefault(policy, []):
                found[policy].append(agent)
    return found


def _by_spec(
    policies_of: Mapping[str, Sequence[str]],
    agents_of: Mapping[str, Sequence[str]],
    specs: Mapping[str, EnvironmentSpec],
) -> dict[str, tuple[str, ...]]:
    """Returns the policies that each agent may get from a function: those that agents with its spec have got."""
    return {
        agent: tuple(
            policy for policy in policies if any(specs[one] == specs[agent] for one in agents_of.get(policy, ()))
        )
        for agent, policies in policies_of.items()
    }


def _check_function(mapping: Any, function: Any) -> None:
    if not callable(function):
        raise CallboardError(
            f"mapping {mapping!r} is of type {type(function).__name__}: give a table {{pattern: policy}}, a function "
            "(agent, episode, rng) -> policy, or its name 'package.module:function'"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some callables written in C have no signature.
        return
    try:
        signature.bind("agent", 0, None)
    except TypeError as error:
        raise CallboardError(
            f"mapping {mapping!r} cannot be called with (agent, episode, rng), in this order: {error}"
        ) from error
