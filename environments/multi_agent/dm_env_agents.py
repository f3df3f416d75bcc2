"""Adapter for environments with the `dm_env` interface whose timesteps are dictionaries by agent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data import Nest
from ...errors import CallboardError
from ..adapters.dm_env_adapter import spec_encoding
from ..batches import encoding
from ..batches.batched import picture
from ..batches.encoding import EnvironmentEncoding
from ..batches.given_observations import one_number
from ..batches.infos import NO_INFO
from ..batches.tasks import Task, Tasks, no_task
from .agent_rewards import AgentRewards
from .checked_agents import encoded_observation
from .multi_agent import AgentStep, MultiAgentEnvironment, absent_observation, close_environment, state_vector


class DmEnvAgents(MultiAgentEnvironment):
    """An environment with the `dm_env` interface whose observations, actions, rewards and specs are mappings by agent.

    `observation_spec()`, `action_spec()` and `reward_spec()` are mappings with all agents as keys; the last one is what
    distinguishes the environment from one with a single agent.  Agents that are keys of a timestep's observation are
    present.  The discount is a number for all agents or a mapping; an agent whose discount is 0 has terminated and is
    absent until the next episode, and the others are truncated at a LAST timestep.  Other discounts than 0 and 1 are
    refused.  The step type is one for all agents.  An agent that terminates needs no observation.  A reward without an
    observation is added to the agent's next one, see `AgentRewards`.

    `dm_env` cannot seed an existing environment, so environments must be seeded when they are created.  It defines
    neither infos nor tasks nor states: an environment has them if it has a method `info()`, which returns a mapping by
    agent, `set_task(task)`, and `state()` with `state_spec()`.
    """

    def __init__(self, environment: Any, name: str) -> None:
        """Takes ownership of an environment; `close` closes it.

        Args:
          environment: the environment.
          name: its name, for messages.

        Raises:
          CallboardError: specs are not mappings with the same keys, or are not supported.
        """
        observations, actions = environment.observation_spec(), environment.action_spec()
        if not (
            isinstance(observations, Mapping) and isinstance(actions, Mapping) and observations.keys() == actions.keys()
        ):
            raise CallboardError(
                f"{name} must have mappings by agent as observation_spec and action_spec, with the same agents"
            )
        self._environment = environment
        self._name = name
        self._rewards = AgentRewards(name, observations)
        self._ids = self._rewards.ids
        self.agents = tuple(self._ids)
        self._encodings = {
            agent: EnvironmentEncoding(
                spec_encoding(observations[id], "observation"), spec_encoding(actions[id], "action")
            )
            for agent, id in self._ids.items()
        }
        self.specs = {agent: own.spec() for agent, own in self._encodings.items()}
        self._tasks = Tasks(1)
        self._takes_task = False
        self._ended: set[str] = set()
        self._closed = False
        self.is_over = True

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        if self._takes_task:
            self._tasks.pass_on(0, self._environment.set_task)
        timestep = self._environment.reset()
        self.is_over, self._ended = False, set()
        self._rewards.check_agents(timestep.observation, "observations")
        self._rewards.begin()
        infos = self._infos()
        return {
            agent: AgentStep(self._observation(agent, timestep.observation[id]), info=infos.get(id) or NO_INFO)
            for agent, id in self._ids.items()
            if id in timestep.observation
        }

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        own_actions = {
            self._ids[agent]: encoding.decode_one(self._encodings[agent].action, action)
            for agent, action in actions.items()
        }
        timestep = self._environment.step(own_actions)
        self.is_over = bool(timestep.last())
        infos = self._infos()
        steps: dict[str, AgentStep] = {}
        for what in ("observation", "reward", "discount"):
            if isinstance(given := getattr(timestep, what), Mapping) or what == "observation":
                self._rewards.check_agents(given, f"{what}s")
        for agent, id in self._ids.items():
            observed, acted = id in timestep.observation, agent in actions
            if not observed and not acted and not isinstance(timestep.reward, Mapping):
                continue  # A reward for all agents is for those that are there.
            reward, discount = self._numbers(timestep, agent, id, acted and observed)
            if agent in self._ended:
                self._rewards.after_end(agent, reward if isinstance(timestep.reward, Mapping) else 0.0)
                continue
            terminated, info = discount == 0, infos.get(id) or NO_INFO
            if acted and (observed or terminated):
                reward = self._rewards.of_transition(agent, reward)
            else:
                self._rewards.keep(agent, reward)
                reward = 0.0
            if observed:
                observation = self._observation(agent, timestep.observation[id])
                steps[agent] = AgentStep(observation, reward, terminated, self.is_over and not terminated, info)
            elif acted and terminated:
                steps[agent] = AgentStep(absent_observation(self.specs[agent]), reward, terminated=True, info=info)
            if terminated and (observed or acted):
                self._ended.add(agent)
                self._rewards.end(agent)
        if self.is_over:
            self._rewards.end_all()
        return steps

    @property
    def state_size(self) -> int | None:
        if not all(callable(getattr(self._environment, name, None)) for name in ("state", "state_spec")):
            return None
        return int(np.prod(self._environment.state_spec().shape, dtype=np.int64))

    def state(self) -> np.ndarray:
        return state_vector(self._environment.state(), self.state_size)

    def set_task(self, task: Task) -> None:
        if not callable(getattr(self._environment, "set_task", None)):
            raise no_task(self._name, "give it a method 'set_task'")
        self._takes_task = True
        self._tasks.set(task)

    def render(self) -> np.ndarray:
        render = getattr(self._environment, "render", None)
        if render is None:
            raise CallboardError(f"{self._name} has no picture to show: it has no method 'render'")
        return picture(render(), self._name)

    @property
    def unwrapped(self) -> Any:
        return self._environment

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            close_environment(self._environment)

    def _observation(self, agent: str, observation: Any) -> Nest:
        return encoded_observation(self._name, agent, self._encodings[agent].observation, observation)

    def _infos(self) -> Mapping[Any, Any]:
        info = getattr(self._environment, "info", None)
        infos = (info() or {}) if callable(info) else {}
        self._rewards.check_agents(infos, "infos")
        return infos

    def _numbers(self, timestep: Any, agent: str, id: Any, has_transition: bool) -> tuple[float, float]:
        discount = timestep.discount.get(id, 1.0) if isinstance(timestep.discount, Mapping) else timestep.discount
        number = one_number(discount)
        if number is None or number not in (0.0, 1.0):
            raise CallboardError(
                f"'step' of {self._name} gives agent {agent!r} the discount {discount!r}: with several agents it must "
                "be 0 or 1"
            )
        if isinstance(timestep.reward, Mapping):
            return self._rewards.given(timestep.reward, agent, has_transition), number
        return self._rewards.number(timestep.reward, agent), number


def is_dm_env_of_agents(made: Any) -> bool:
    """Returns whether an object has the `dm_env` interface, with rewards by agent."""
    has_specs = all(callable(getattr(made, name, None)) for name in ("observation_spec", "action_spec", "reward_spec"))
    return has_specs and isinstance(made.reward_spec(), Mapping)
