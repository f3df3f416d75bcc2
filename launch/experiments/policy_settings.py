"""Settings of the policies of a run with several: those that learn are agents, the others are of the kinds below."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from annotated_types import Interval

from ...agents.agent import Agent
from ...agents.agent_names import AGENTS, agent_name
from ...agents.registry import agent_class, agent_settings
from ...errors import CallboardError, UnknownSetting, unknown
from ...settings.nested_settings import declared_fields, merged_values, values_of
from ...settings.setting_types import NAME, check_ranges, converted, field_types, given_fields, shown
from ..run_directory.found_runs import parse_run_reference

SHARED = "shared"
"""Name of the policy of all agents where a run names none."""
RANDOM = "random"
"""Name that stands for a `RandomPolicy` in place of an agent's."""
_RESERVED = ("actor", "agent", "callbacks", "curriculum", "episode", "evaluator", "inference", "learner", "replay")
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclasses.dataclass(frozen=True)
class RandomPolicy:
    """A policy that takes every legal action with the same probability.  It does not learn."""


@dataclasses.dataclass(frozen=True)
class TrainedPolicy:
    """A policy that another run has learned, which does not learn here.

    Attributes:
      weights: the other run: `RUN`, `RUN@latest`, `RUN@best` or `RUN@STEP`, where RUN is a run directory, a path or a
        URL, or `RUN/policies/NAME` of a run with several policies.
    """

    weights: str

    def with_absolute_path(self) -> TrainedPolicy:
        """Returns the policy with an absolute path; URLs are kept."""
        return TrainedPolicy(str(parse_run_reference(self.weights).absolute()))


FrozenPolicy = TrainedPolicy
"""Its name in Callboard 0.2, for scripts that import it."""


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """Earlier versions of a policy that learns, as its opponents (self-play).

    The first snapshot holds the initial weights.  At the start of an episode, each agent that the mapping gives this
    policy gets one of the snapshots, all with the same probability.

    Attributes:
      snapshots_of: name of the policy that learns.
      every: environment steps between two snapshots.
      keep: number of the newest snapshots to play with.
    """

    snapshots_of: str
    every: Annotated[int, Interval(ge=1, le=2**62)] = 50_000
    keep: Annotated[int, Interval(ge=1, le=100)] = 5

    def __post_init__(self) -> None:
        check_ranges(self, "policies.")


PolicySettings = Agent | RandomPolicy | TrainedPolicy | Snapshots
"""The settings of a policy of a run; with those of an `Agent` it learns."""
_KINDS: Mapping[str, type] = {"weights": TrainedPolicy, "snapshots_of": Snapshots}


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """An agent by name and the plain values of its hyperparameters, nested as in YAML, before its class is imported."""

    name: str
    values: Mapping[str, Any]

    def check(self, key: str, known: Collection[str] = ()) -> None:
        """Checks names, types and ranges without importing TensorFlow; a user's agent is checked when it is made.

        Args:
          key: where the settings stand, for messages, such as `agent`.
          known: flat names of all settings, for suggestions.

        Raises:
          CallboardError: a name is unknown or a value has the wrong type or range.
        """
        kind = agent_settings(self.name)
        with owners_named(self.name, key):
            given = given_fields(kind, self.values, key, known)
        if not issubclass(kind, Agent):
            check_ranges(kind(**given), f"{key}.")

    def make(self) -> Agent:
        """Imports the agent's class and makes the agent."""
        return converted("agent", self.values, agent_class(self.name))


@contextlib.contextmanager
def owners_named(agent: str, key: str) -> Iterator[None]:
    """Says which other agents have a setting that an agent does not have, in place of a name that is only similar.

    Args:
      agent: name of the agent.
      key: where its settings stand, such as `agent`.
    """
    try:
        yield
    except UnknownSetting as error:
        others = [other for other in AGENTS if _declares(other, error.key.removeprefix(f"{key}."))]
        if not error.is_guess or not others or agent in others:
            raise
        subject, owners = error.subject, ", ".join(others)
        raise CallboardError(f"unknown {subject}; it is a setting of {owners}, not of {agent}") from error


def _declares(agent: str, name: str) -> bool:
    """Returns whether an agent has a setting, or a group of settings, of that name."""
    return any(f"{declared}.".startswith(f"{name}.") for declared in declared_fields(agent_settings(agent)))


def parse_agent(settings: Any, key: str) -> tuple[str | None, dict[str, Any]]:
    """Returns the name of an agent, or None, and its hyperparameters, which YAML gives as a mapping or a name alone.

    Raises:
      CallboardError: it gives something else.
    """
    if isinstance(settings, str):
        return settings, {}
    if settings is not None and not isinstance(settings, Mapping):
        raise CallboardError(f"{key} must be a name, or hold settings such as `{{name: ppo}}`, not {shown(settings)}")
    values = dict(settings or {})
    name = values.pop(NAME, None)
    if not isinstance(name, str | None):
        raise CallboardError(f"{key}.name must be the name of an agent, such as ppo, not {shown(name)}")
    return name, values


def parse_policies(policies: Mapping[str, Any], agent: str, of_agent: Mapping[str, Any]) -> dict[str, Any]:
    """Checks settings of policies, as YAML and options give them, without TensorFlow.

    Args:
      policies: settings by policy: empty for the run's agent; some of its hyperparameters; `name` of another agent and
        its hyperparameters, or `random`; or the fields of a `TrainedPolicy` or of `Snapshots`.
      agent: name of the run's agent.
      of_agent: plain values of its hyperparameters.

    Returns:
      By policy, `AgentSettings` of those that learn, or a policy of another kind.

    Raises:
      CallboardError: a name is unknown or a value has the wrong type or range.
    """
    # In YAML, a name may be a number.
    return {str(name): _parse(f"policies.{name}", one, agent, of_agent) for name, one in policies.items()}


def as_mappings(policies: Any) -> Any:
    """Returns settings of policies, of which options can change entries: `{name: ppo}` for `ppo`."""
    if not isinstance(policies, Mapping):
        return policies
    return {str(name): {NAME: one} if isinstance(one, str) else one for name, one in policies.items()}


def _parse(key: str, settings: Any, agent: str, of_agent: Mapping[str, Any]) -> Any:
    if isinstance(settings, PolicySettings | AgentSettings):
        return settings
    name, values = parse_agent(settings, key)
    values = _with_underscores(values)
    for needed, kind in _KINDS.items():
        if needed in values and not _is_setting(needed, name):
            return converted(key, values if name is None else {**values, NAME: name}, kind)
    if name == RANDOM:
        if values:
            raise CallboardError(f"{key}: a random policy has no settings; leave {min(values)} out")
        return RandomPolicy()
    if name in (None, agent):
        values = merged_values(of_agent, values, declared_fields(agent_settings(agent)), entries=False)
    made = AgentSettings(name or agent, values)
    made.check(key)
    return made


def _is_setting(key: str, agent: str | None) -> bool:
    """Returns whether a key, with which settings of a policy of another kind begin, is a setting of the named agent."""
    return agent not in (None, RANDOM) and key in field_types(agent_settings(agent))


def _with_underscores(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns settings by the names of fields; what an option has written with dashes comes last, and counts."""
    return {
        str(key).replace("-", "_"): _with_underscores(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
    }


def made_policies(policies: Mapping[str, Any]) -> dict[str, PolicySettings]:
    """Returns the policies that `parse_policies` has checked, with their agents."""
    return {name: one.make() if isinstance(one, AgentSettings) else one for name, one in policies.items()}


def policy_setting(policy: PolicySettings | AgentSettings) -> dict[str, Any]:
    """Returns the settings of a policy, from which `parse_policies` restores it.

    Raises:
      CallboardError: an agent has a class or a function as a setting.
    """
    if isinstance(policy, AgentSettings):
        return {NAME: policy.name, **policy.values}
    if isinstance(policy, RandomPolicy):
        return {NAME: RANDOM}
    fields = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}  # type: ignore[arg-type]
    if not isinstance(policy, Agent):
        return fields
    for name, value in values_of(policy).items():
        if callable(value):
            raise CallboardError(
                f"agent.{name} is {shown(value)}, which a run's settings cannot hold: let it be a name, and find what "
                "it names where the agent uses it"
            )
    return {NAME: agent_name(policy), **fields}


def check_policies(policies: Mapping[str, PolicySettings], train: tuple[str, ...]) -> None:
    """Rejects policies that cannot be those of a run, whatever the environment.

    Args:
      policies: all policies, by name.
      train: names of those that learn; empty for all agents.

    Raises:
      CallboardError: names the problem and how to fix it.
    """
    for name, policy in policies.items():
        if not isinstance(name, str) or not name or not set(name) <= _CHARACTERS:
            raise CallboardError(f"{name!r} cannot name a policy: use letters, digits, - and _")
        if name in _RESERVED:
            raise CallboardError(f"{name!r} cannot name a policy, because metrics have that name; choose another")
        if not isinstance(policy, PolicySettings):
            raise CallboardError(
                f"policies: {name} must be an agent, RandomPolicy, TrainedPolicy or Snapshots, not {shown(policy)}"
            )
    for name in train:
        if name not in policies:
            raise unknown("policy in train", name, policies)
        if not isinstance(policies[name], Agent):
            raise CallboardError(f"the policy {name!r} is fixed and cannot learn; leave it out of train")
    learning = learning_policies(policies, train)
    if not learning:
        raise CallboardError("no policy learns: give one of them an agent, such as `{name: ppo}`")
    for name, policy in policies.items():
        if isinstance(policy, Agent) and name not in learning:
            raise CallboardError(
                f"the policy {name!r} has an agent, and is not in train: name it there, or give it the weights of "
                "another run, as `{weights: RUN@best}`"
            )
        if isinstance(policy, Snapshots) and policy.snapshots_of not in learning:
            raise CallboardError(
                f"policies: {name} are snapshots of {policy.snapshots_of!r}, which does not learn; choose from "
                f"{', '.join(learning)}"
            )


def learning_policies(policies: Mapping[str, PolicySettings], train: tuple[str, ...]) -> dict[str, Agent]:
    """Returns the agents of the policies that learn, by policy."""
    return {
        name: policy for name, policy in policies.items() if isinstance(policy, Agent) and (not train or name in train)
    }
