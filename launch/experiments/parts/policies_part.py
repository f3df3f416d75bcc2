"""The environment's agents, and the policies that act for them."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ....agents import Agent
from ....environments import ONLY_AGENT, agent_specs
from ....environments import spec as environment_spec
from ....settings.setting_types import texts_of
from ....specs import EnvironmentSpec
from .environment_part import EnvironmentPart


@dataclasses.dataclass(frozen=True)
class AgentPart:
    """The agent of an experiment.

    Attributes:
      agent: the agent and its hyperparameters; or its class or its name, with default hyperparameters.
    """

    agent: Agent


@dataclasses.dataclass(frozen=True)
class PoliciesPart(EnvironmentPart, AgentPart):
    """The environment's agents, and the policies that act for them.

    Attributes:
      policies: the policies of an environment with several agents, by name, see docs/guides/policies.md: in Python an
        agent, `RandomPolicy`, `TrainedPolicy` or `Snapshots`; in YAML settings such as `{}` for the run's agent,
        `{name: apex}`, `{name: random}`, `{weights: RUN@best}` or `{snapshots_of: NAME}`.  By default all agents of the
        environment share one policy, `shared`, which is the run's agent.
      mapping: which policy an agent of the environment gets for an episode: a table of patterns such as
        `{player_0: main, player_*: {main: 1, old: 3}}` with weights where there is a choice, or
        `package.module:function`; see docs/guides/policies.md.  By default the policy of the agent's own name, or the
        only one.
      evaluation_mapping: the mapping in evaluations; None for the same.
      train: names of the policies that learn, a list or separated by commas; by default all that are agents.
      agent_groups: agents of the environment that act as one, as names or patterns by the name of the group; see
        docs/guides/multi_agent.md.
      agent_index: whether observations contain which agent of the environment they are of, for shared policies.
      agent_padding: whether agents with different spaces get the same, so that they can share a policy: observations
        are padded with zeros, and discrete actions with ones that a mask forbids.
      agent_state: a `state` that observations also contain, for centralized critics: `observations` of all agents,
        `observations_and_actions`, or the `environment`'s own.  None for none.
    """

    policies: dict[str, Any] = dataclasses.field(default_factory=dict)
    mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    evaluation_mapping: str | dict[str, Any] | Callable[..., Any] | None = None
    train: str | tuple[str, ...] = ()
    agent_groups: dict[str, Any] = dataclasses.field(default_factory=dict)
    agent_index: bool = False
    agent_padding: bool = False
    agent_state: Literal["observations", "observations_and_actions", "environment"] | None = None

    def agent_specs(self) -> dict[str, EnvironmentSpec]:
        """Returns the spec of each agent of the environment, by making one; if it has one, that agent has no name."""
        if not self.has_agents:
            return {ONLY_AGENT: environment_spec(self.env, self.options_of_env)}
        return agent_specs(self.env, self.options_of_env, self.agent_options)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names in `train`."""
        return tuple(filter(None, texts_of(self.train)))

    @property
    def agent_options(self) -> dict[str, Any]:
        """How an environment with several agents is presented, see `environments.make_multi_agent`."""
        return {
            "groups": self.agent_groups,
            "agent_index": self.agent_index,
            "state": self.agent_state,
            "padding": self.agent_padding,
        }
