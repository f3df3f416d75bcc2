"""Adapter for PettingZoo environments: parallel ones, and turn-based ones through PettingZoo's own conversion."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree

from ...action_masks import MASK, has_mask
from ...data import Nest
from ...errors import CallboardError
from ..adapters.gymnasium_checks import check_flags, check_picture, frame_rate, rendered
from ..batches import encoding
from ..batches.batched import picture
from ..batches.encoding import EnvironmentEncoding
from ..batches.infos import NO_INFO, Info
from ..batches.spaces import action_encoding, observation_encoding
from ..batches.tasks import Task, Tasks, check_options_error, reset_options
from ..info_masks import mask_size, read_mask, space_with_mask, with_mask
from .agent_rewards import AgentRewards, finite_reward
from .checked_agents import encoded_observation
from .multi_agent import AgentStep, MultiAgentEnvironment, absent_observation, close_environment, state_vector

_BY_AGENT = ("terminations", "truncations", "rewards", "infos")


def as_parallel(environment: Any, name: str) -> Any:
    """Returns a parallel environment, without what slows a turn-based one down that is behind it.

    Args:
      environment: a `ParallelEnv` or an `AECEnv`.
      name: its name, for messages.
    """
    converted = type(environment).__module__ == "pettingzoo.utils.conversions" and hasattr(environment, "aec_env")
    if not converted and not hasattr(environment, "agent_iter"):
        return environment
    from pettingzoo.utils import conversions

    turn_based = _without_checks(environment.aec_env if converted else environment)
    if isinstance(turn_based, conversions.parallel_to_aec_wrapper):
        return turn_based.env
    parallelizable = turn_based.metadata.get("is_parallelizable")
    checked = CheckedTurns(turn_based, name)
    if converted:
        return type(environment)(checked)
    return (conversions.aec_to_parallel if parallelizable else conversions.turn_based_aec_to_parallel)(checked)


class CheckedTurns:
    """A turn-based environment whose agents, ends, rewards and infos are checked where they change.

    The conversion indexes, compares and adds them before anything of Callboard sees them: an end that is a text takes
    an agent out of the game, a missing entry is a `KeyError`.
    """

    def __init__(self, environment: Any, name: str) -> None:
        self._environment, self._name = environment, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_environment":
            raise AttributeError(attribute)
        return getattr(self._environment, attribute)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._environment.reset(seed=seed, options=options)
        self._check("reset")

    def step(self, action: Any) -> None:
        self._environment.step(action)
        self._check("step")

    def _check(self, method: str) -> None:
        name, agents = self._name, getattr(self._environment, "agents", None)
        if not isinstance(agents, list | tuple):
            raise CallboardError(f"{method!r} of {name} leaves no list 'agents' of those that are in the game")
        parts: list[Any] = [getattr(self._environment, what, None) for what in _BY_AGENT]
        for what, part in zip(_BY_AGENT, parts, strict=True):
            if not isinstance(part, Mapping):
                raise CallboardError(f"{method!r} of {name} leaves no dictionary {what!r} by agent")
            for agent in agents:
                if agent not in part:
                    raise CallboardError(f"{method!r} of {name} gives agent {str(agent)!r} no entry in {what!r}")
        terminations, truncations, rewards, infos = parts
        for agent in agents:
            beginning = f"{method!r} of {name} gives agent {str(agent)!r}"
            check_flags(beginning, terminations[agent], truncations[agent])
            finite_reward(name, str(agent), rewards[agent], method)
            if not isinstance(infos[agent], Mapping):
                raise CallboardError(f"{beginning} the info {infos[agent]!r:.100}, no dictionary")
        selected = getattr(self._environment, "agent_selection", None)
        if agents and selected not in agents:
            raise CallboardError(
                f"{method!r} of {name} leaves agent_selection {str(selected)!r}, which is none of its agents: "
                f"{', '.join(map(str, agents))}"
            )


def _without_checks(turn_based: Any) -> Any:
    """Returns a turn-based environment without PettingZoo's outer wrappers that only check how it is called.

    They take a third of the time of a step of `simple_spread`.
    """
    from pettingzoo.utils import wrappers

    while isinstance(turn_based, wrappers.OrderEnforcingWrapper | wrappers.AssertOutOfBoundsWrapper):
        turn_based = turn_based.env
    return turn_based


_GIVEN = ("observations", "rewards", "terminations", "truncations", "infos", "agents")


class PettingZooEnvironment(MultiAgentEnvironment):
    """A PettingZoo environment.

    Agents are named by the text of their PettingZoo names.  As in PettingZoo, an agent that has terminated or was
    truncated does not return in the same episode, and the episode is over when no other agent is left.  An agent that
    the environment drops with a final observation, but neither terminated nor truncated, counts as truncated.  One that
    terminates needs no final observation.  A reward without an observation is added to the agent's next one, see
    `AgentRewards`.

    In turn-based environments all agents act in each step, and only the action of the agent whose turn it is has an
    effect.  Where an agent's `action_mask` has no legal action, because it is not the agent's turn or its episode is
    over, the agent sees a mask in which action 0 is the only legal one, so that its policy is deterministic there.
    Where agents act together, such a mask is shown as it is, and refused.

    A task is passed to the environment's method `set_task` before a reset, if it has one; otherwise every reset gets
    the task, a mapping, as its `options`.
    """

    def __init__(self, environment: Any, name: str, mask_key: str | None = None) -> None:
        """Takes ownership of an environment; `close` closes it.

        Args:
          environment: a `ParallelEnv` or an `AECEnv`.
          name: the environment's name, for messages.
          mask_key: name of the action masks in `infos`, if they are to become the part `action_mask` of observations.
            All agents with discrete actions have one; it may be missing where an agent ends, or waits for its turn.

        Raises:
          CallboardError: the environment has no `possible_agents`, a space is not supported, or `mask_key` is given and
            no agent has discrete actions.
        """
        self._name = name
        self._environment = environment = as_parallel(environment, name)
        possible = getattr(environment, "possible_agents", None)
        if not possible:
            raise CallboardError(f"{name} has no possible_agents: list all agents that may appear in them")
        self._rewards = AgentRewards(name, possible)
        self._ids = self._rewards.ids
        self.agents = tuple(self._ids)
        self._mask_key = mask_key
        self._mask_sizes: dict[str, int] = {}
        self._by_turns = hasattr(environment, "aec_env") and not environment.metadata.get("is_parallelizable")
        self._encodings = {agent: self._encoding(agent, id) for agent, id in self._ids.items()}
        if mask_key is not None and not self._mask_sizes:
            raise CallboardError(f"{name} has no discrete actions that could be masked")
        self.specs = {agent: own.spec() for agent, own in self._encodings.items()}
        shape = getattr(getattr(environment, "state_space", None), "shape", None)
        has_state = callable(getattr(environment, "state", None))
        self._state_size = int(np.prod(shape, dtype=np.int64)) if has_state and shape is not None else None
        self._waiting: dict[str, Nest] = {}
        self._tasks = Tasks(1)
        self._set_task = getattr(environment, "set_task", None) or getattr(self.unwrapped, "set_task", None)
        self._options: dict[str, Any] | None = None
        self._ended: set[str] = set()
        self._closed = False
        self.is_over = True

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        if self._set_task is not None:
            self._tasks.pass_on(0, self._set_task)
        arguments: dict[str, Any] = {"seed": seed}
        if self._options is not None:
            arguments["options"] = dict(self._options)
        try:
            outcome = self._environment.reset(**arguments)
        except TypeError as error:
            check_options_error(self._name, error)
            raise
        if not (isinstance(outcome, tuple) and len(outcome) == 2 and all(isinstance(one, Mapping) for one in outcome)):
            raise CallboardError(
                f"'reset' of {self._name} must return (observations, infos), two dictionaries by agent, as in "
                "PettingZoo 1.24 and later"
            )
        observations, infos = outcome
        self._rewards.check_agents(observations, "observations")
        self._rewards.check_agents(infos, "infos")
        self._rewards.begin()
        self._ended = set()
        if not getattr(self._environment, "agents", None):
            raise CallboardError(
                f"'reset' of {self._name} leaves no agents in the game: let it set 'agents' to those that take part, "
                "such as possible_agents[:]"
            )
        self.is_over = False
        return {
            agent: AgentStep(self._observation(agent, observations[id], infos.get(id)), info=infos.get(id) or NO_INFO)
            for agent, id in self._ids.items()
            if id in observations
        }

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        own_actions = {
            self._ids[agent]: encoding.decode_one(self._encodings[agent].action, action)
            for agent, action in actions.items()
        }
        outcome = self._environment.step(own_actions)
        if not (isinstance(outcome, tuple) and len(outcome) == 5 and all(isinstance(one, Mapping) for one in outcome)):
            raise CallboardError(
                f"'step' of {self._name} must return (observations, rewards, terminations, truncations, infos), five "
                "dictionaries by agent"
            )
        observations, rewards, terminations, truncations, infos = outcome
        for what, given in zip(_GIVEN, (*outcome, dict.fromkeys(self._environment.agents)), strict=True):
            self._rewards.check_agents(given, what)
        left = set(self._environment.agents)
        steps: dict[str, AgentStep] = {}
        self.is_over = True
        for agent, id in self._ids.items():
            reward = self._rewards.given(rewards, agent, agent in actions and id in observations)
            if agent in self._ended:
                self._rewards.after_end(agent, reward)
                continue
            terminated, truncated = terminations.get(id, False), truncations.get(id, False)
            if terminated is not False or truncated is not False:
                check_flags(f"'step' of {self._name} gives agent {agent!r}", terminated, truncated)
            terminated, truncated = bool(terminated), bool(truncated)
            info = infos.get(id) or NO_INFO
            if id in observations and (agent in actions or id in left):
                truncated = truncated or not (terminated or id in left)
                observation = self._observation(agent, observations[id], infos.get(id), terminated or truncated)
                if agent in actions:
                    reward = self._rewards.of_transition(agent, reward)
                else:
                    self._rewards.keep(agent, reward)
                    reward = 0.0
                steps[agent] = AgentStep(observation, reward, terminated, truncated, info)
            elif agent in actions and terminated:
                reward = self._rewards.of_transition(agent, reward)
                steps[agent] = AgentStep(absent_observation(self.specs[agent]), reward, terminated=True, info=info)
            else:
                self._rewards.keep(agent, reward)
            if terminated or truncated:
                self._ended.add(agent)
                self._rewards.end(agent)
            elif id in left:
                self.is_over = False
        if self.is_over:
            self._rewards.end_all()
        return steps

    @property
    def state_size(self) -> int | None:
        return self._state_size

    def state(self) -> np.ndarray:
        return state_vector(self._environment.state(), self._state_size)

    def set_task(self, task: Task) -> None:
        if self._set_task is None:
            self._options = reset_options(self._name, task)
        self._tasks.set(task)

    @property
    def frames_per_second(self) -> float | None:
        return frame_rate(self._environment)

    def render(self) -> np.ndarray:
        check_picture(self._environment, self._name)
        return picture(rendered(self._environment, self._name), self._name)

    @property
    def unwrapped(self) -> Any:
        return getattr(self._environment, "unwrapped", self._environment)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            close_environment(self._environment)

    def _encoding(self, agent: str, id: Any) -> EnvironmentEncoding:
        observation, action = self._environment.observation_space(id), self._environment.action_space(id)
        try:
            if self._mask_key is not None and (size := mask_size(action)):
                self._mask_sizes[agent] = size
                observation = space_with_mask(observation, size)
            return EnvironmentEncoding(observation_encoding(observation), action_encoding(action))
        except CallboardError as error:
            raise CallboardError(f"agent {agent!r} of {self._name}: {error}") from error

    def _observation(self, agent: str, observation: Any, info: Info | None, ended: bool = False) -> Nest:
        if agent in self._mask_sizes:
            observation = with_mask(observation, self._mask(agent, info or NO_INFO, ended))
        encoded = encoded_observation(self._name, agent, self._encodings[agent].observation, observation)
        waits = self._ids[agent] in getattr(self._environment, "waiting", ())
        may_wait = ended or waits or (self._by_turns and not self._has_turn(agent))
        if may_wait and has_mask(encoded) and not any(part.any() for part in tree.flatten(encoded[MASK])):
            if agent not in self._waiting:
                self._waiting[agent] = absent_observation(self.specs[agent], legal="first")[MASK]
            encoded[MASK] = self._waiting[agent]
        return encoded

    def _has_turn(self, agent: str) -> bool:
        return self._environment.aec_env.agent_selection == self._ids[agent]

    def _mask(self, agent: str, info: Info, ended: bool) -> np.ndarray:
        size = self._mask_sizes[agent]
        if self._by_turns and not self._has_turn(agent):
            return np.zeros(size, np.int8)
        assert self._mask_key is not None
        return read_mask(info, self._mask_key, size, f"agent {agent!r} of {self._name}", needed=not ended)


def is_pettingzoo(made: Any) -> bool:
    """Returns whether an object is an environment of PettingZoo; duck-typed, since the package may not be installed."""
    return all(callable(getattr(made, name, None)) for name in ("reset", "step", "observation_space", "action_space"))
