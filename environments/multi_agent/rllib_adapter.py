"""Environments with the dictionaries of RLlib's `MultiAgentEnv`, as parallel environments of PettingZoo."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import tree

from ...action_masks import MASK
from ...errors import CallboardError
from ..adapters.gymnasium_checks import check_flags
from ..adapters.old_gym import converted_space
from .multi_agent import close_environment

_ALL, _COMMON = "__all__", "__common__"
_NAMES = ("possible_agents", "agents", "_agent_ids")


class RllibEnvironment:
    """An environment with RLlib's interface, in that of a parallel environment of PettingZoo.

    Observations, rewards and ends are dictionaries by agent, and the key `__all__` of an end says that the episode is
    over.  Agents that have an observation act next.  One that has none waits: as in turn-based environments of
    PettingZoo, it sees its last observation again, with an `action_mask` of zeros if it has a mask, and its action is
    not passed on.  `step` may return four dictionaries, with `dones`, as in old
    versions of RLlib, or five; `reset` observations alone, or observations and infos.  Agents are those that the
    environment lists in `possible_agents` or `agents`, those of `get_agent_ids()`, or those of its dictionaries of
    spaces.  Their spaces are in `observation_spaces` and `action_spaces` by agent, or in `observation_space` and
    `action_space`, which are `Dict`s by agent or the same for all.

    Ray is not imported.

    Args:
      environment: the environment.
      name: its name, for messages.

    Raises:
      CallboardError: it lists no agents, or an agent has no space.
    """

    def __init__(self, environment: Any, name: str):
        self._environment = environment
        self._name = name
        self.possible_agents = _agents(environment)
        if not self.possible_agents:
            raise CallboardError(f"{name} lists no agents: set 'possible_agents' to the names of all of them")
        self._observations = self._spaces("observation_space")
        self._actions = self._spaces("action_space")
        self.agents: list[Any] = []
        self._last: dict[Any, Any] = {}
        self._acting: set[Any] = set()
        self.waiting: set[Any] = set()
        """Agents to which the last step showed their last observation again, since it is not their turn."""
        self.metadata = getattr(environment, "metadata", None) or {}
        self.render_mode = getattr(environment, "render_mode", None)
        self._takes_seed = _takes(environment.reset, "seed")

    def observation_space(self, agent: Any) -> gymnasium.Space:
        return self._observations[agent]

    def action_space(self, agent: Any) -> gymnasium.Space:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        arguments: dict[str, Any] = {"seed": seed} if self._takes_seed else {}
        if options is not None:
            arguments["options"] = options
        if not self._takes_seed and seed is not None and callable(getattr(self._environment, "seed", None)):
            self._environment.seed(seed)
        outcome = self._environment.reset(**arguments)
        self.agents = list(self.possible_agents)
        observations, infos = outcome if isinstance(outcome, tuple) and len(outcome) == 2 else (outcome, {})
        if not isinstance(observations, Mapping):
            raise CallboardError(f"'reset' of {self._name} must return observations, a dictionary by agent, and infos")
        self._last, self._acting, self.waiting = dict(observations), set(observations), set()
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> Any:
        outcome = self._environment.step({agent: one for agent, one in actions.items() if agent in self._acting})
        if not isinstance(outcome, tuple) or len(outcome) not in (4, 5):
            raise CallboardError(
                f"'step' of {self._name} must return (observations, rewards, terminateds, truncateds, infos), five "
                "dictionaries by agent, or four with 'dones' as in old versions of RLlib"
            )
        if not all(isinstance(one, Mapping) for one in outcome):
            return outcome
        observations, rewards, terminated, *truncated, infos = outcome
        cut = truncated[0] if truncated else {}
        for agent in {**terminated, **cut}:
            beginning = f"'step' of {self._name} gives agent {agent!r}"
            check_flags(beginning, terminated.get(agent, False), cut.get(agent, False))
        ends = [self._by_agent(terminated), self._by_agent(cut)]
        self.agents = [agent for agent in self.agents if not any(end.get(agent) for end in ends)]
        infos = {agent: info for agent, info in infos.items() if agent != _COMMON}
        self._acting = set(observations)
        self._last |= observations
        self.waiting = {
            one for one in self._last if one not in observations and one in actions and not ends[0].get(one)
        }
        observations = {**observations, **{agent: _waiting(self._last[agent]) for agent in self.waiting}}
        # An agent without a reward has 0, as in RLlib.
        return observations, {**dict.fromkeys(observations, 0.0), **rewards}, *ends, infos

    def _by_agent(self, ends: Mapping[Any, Any]) -> dict[Any, Any]:
        """Returns the ends of single agents; those of all that are left, if the episode is over."""
        if ends.get(_ALL):
            return dict.fromkeys(self.agents, True) | {
                agent: end for agent, end in ends.items() if agent != _ALL and end
            }
        return {agent: end for agent, end in ends.items() if agent != _ALL}

    @property
    def unwrapped(self) -> Any:
        return getattr(self._environment, "unwrapped", self._environment)

    def render(self) -> Any:
        return self._environment.render()

    def close(self) -> None:
        close_environment(self._environment)

    def _spaces(self, kind: str) -> dict[Any, gymnasium.Space]:
        spaces = getattr(self._environment, f"{kind}s", None) or getattr(self._environment, kind, None)
        shared = spaces
        parts = getattr(spaces, "spaces", None)
        if isinstance(parts, Mapping) and set(self.possible_agents) <= set(parts):
            spaces = parts
        elif isinstance(spaces, gymnasium.Space):
            spaces = None
        found = {agent: spaces.get(agent) if isinstance(spaces, Mapping) else shared for agent in self.possible_agents}
        missing = [agent for agent, space in found.items() if space is None]
        if missing:
            raise CallboardError(f"{self._name} has no {kind} for agent {str(missing[0])!r}: add it to {kind}s")
        return {agent: converted_space(space) for agent, space in found.items()}


def _waiting(observation: Any) -> Any:
    """Returns the observation of an agent that waits: its last one, with no legal action if it has a mask."""
    if not isinstance(observation, Mapping) or MASK not in observation:
        return observation
    return {**observation, MASK: tree.map_structure(np.zeros_like, observation[MASK])}


def has_rllib_interface(made: Any) -> bool:
    """Returns whether an object, or a class, has RLlib's interface for several agents."""
    bases = made.__mro__ if inspect.isclass(made) else type(made).__mro__
    if any(base.__name__ == "MultiAgentEnv" and base.__module__.startswith("ray.") for base in bases):
        return True
    if gymnasium.Env in bases or hasattr(made, "num_envs"):
        return False
    if inspect.isclass(made):
        return callable(getattr(made, "get_agent_ids", None))
    if not all(callable(getattr(made, name, None)) for name in ("reset", "step")):
        return False
    if callable(getattr(made, "action_space", None)):
        return False  # As in PettingZoo.
    has_spaces = any(getattr(made, name, None) is not None for name in ("action_spaces", "action_space"))
    return has_spaces and bool(_agents(made))


def _agents(environment: Any) -> list[Any]:
    for name in _NAMES:
        if listed := getattr(environment, name, None):
            return list(listed) if isinstance(listed, list | tuple) else sorted(listed, key=str)
    if callable(getattr(environment, "get_agent_ids", None)):
        return sorted(environment.get_agent_ids(), key=str)
    spaces = getattr(environment, "action_spaces", None)
    return list(spaces) if isinstance(spaces, Mapping) else []


def _takes(method: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except ValueError:
        return False
    return any(one.name == name or one.kind is one.VAR_KEYWORD for one in parameters)
