"""Environments with several agents, presented to each policy as a batch of timesteps."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches import encoding
from ..batches.batched import check_seeds
from ..batches.infos import Info, Infos, no_infos
from ..batches.tasks import Task
from ..python_factory import Factory
from .checked_agents import AgentBounds
from .multi_agent import AgentStep, MultiAgentEnvironment, absent_observation
from .multi_agent_factory import Groups, State, is_multi_agent, make_multi_agent, make_separate_agents
from .policy_slots import MultiAgentEpisode, PolicyMapping, PolicySlots, policy_slots

__all__ = ["PolicyBatches", "is_multi_agent", "make_multi_agent", "make_policy_batches"]


class PolicyBatches:
    """B environments with several agents, presented per policy as a batch of timesteps.

    The slots of a policy are (environment, agent) for all agents that it may control, environment by environment.  A
    slot shows the agent's timesteps while the agent is present and plays under this policy: `first` where it appears,
    and `last` where its part ends, with a discount of 0 if it terminated.  Otherwise the slot shows an episode without
    transitions: a timestep that is `first` and `last` at once, with discount 1, reward 0, and zeros as the observation
    (an `action_mask` of ones).  An agent that disappears without having ended shows that too: the transition is not
    valid.  By the rule for valid transitions nothing is learned where an agent is absent.

    When an environment's episode is over, its next step ignores the actions and resets it.  The mapping is called once
    per agent and episode, at the reset.

    Every timestep has new arrays, which later steps do not modify.  Call `reset` before the first `step`.
    """

    executed: int
    """Environments that executed actions in the last `step`; the others were reset."""
    executed_by: dict[str, int]
    """Actions executed in the last `step`, by policy."""
    infos: dict[str, Infos] | None = None
    """By policy: infos of the newest timestep by slot; None unless `keep_infos` was called."""

    def __init__(
        self,
        environments: Sequence[MultiAgentEnvironment],
        mapping: PolicyMapping,
        policies: Sequence[str],
        seeds: Sequence[int],
    ) -> None:
        """Takes ownership of B separate environments with the same agents and specs; `close` closes them.

        Args:
          environments: the environments.
          mapping: chooses the policy of each agent.
          policies: names of all policies.
          seeds: one seed per environment, for its first reset and for the mapping's random choices.

        Raises:
          CallboardError: environments have different agents, or agents of one policy have different specs.
        """
        check_seeds(len(environments), seeds)
        self._environments = tuple(environments)
        self._mapping = mapping
        self._agents = environments[0].agents
        for index, environment in enumerate(environments):
            if environment.agents != self._agents:
                raise CallboardError(
                    f"environments 0 and {index} have different agents: {', '.join(self._agents)}, and "
                    f"{', '.join(environment.agents)}; name all agents that may appear in each"
                )
        self.slots = policy_slots(policies, self._agents, environments[0].specs, mapping)
        self._columns = {policy: _Columns(slots, len(environments)) for policy, slots in self.slots.items()}
        self._current = [
            _CurrentEpisode(index, self._agents, self.slots, int(seed)) for index, seed in enumerate(seeds)
        ]
        self._ended: list[MultiAgentEpisode] = []
        self._task: Task = None
        self._keeps_infos = False
        self._has_warned = False
        self._closed = False
        self.executed = 0
        self.executed_by = dict.fromkeys(self.slots, 0)

    @property
    def batch_size(self) -> int:
        """The number of environments, B."""
        return len(self._environments)

    @property
    def environments(self) -> Sequence[Any]:
        """The libraries' own environments, in order."""
        return tuple(environment.unwrapped for environment in self._environments)

    @property
    def over(self) -> np.ndarray:
        """Whether the episode of each environment has ended, bool `[B]`: its next step resets it."""
        return np.array([environment.is_over for environment in self._environments], np.bool_)

    def reset(self) -> dict[str, Timestep]:
        """Begins a new episode in every environment.

        The first reset uses the seeds passed to the constructor; later resets continue from that random state.

        Returns:
          The first timesteps, by policy.
        """
        self._count_nothing()
        for episode, environment in zip(self._current, self._environments, strict=True):
            self._begin(episode, environment)
        return self._timesteps()

    def step(self, actions: Mapping[str, Nest]) -> dict[str, Timestep]:
        """Executes the actions of all agents that are present; an environment whose episode is over is reset instead.

        Args:
          actions: by policy, a nest of arrays `[slots, ...]` as in its spec; actions in slots of absent agents are
            ignored.  A policy that no agent plays under (see `use`) may be left out.

        Returns:
          The next timesteps, by policy.
        """
        rows = {policy: self._columns[policy].split(nest) for policy, nest in actions.items()}
        self._count_nothing()
        for episode, environment in zip(self._current, self._environments, strict=True):
            if environment.is_over:
                self._begin(episode, environment)
                continue
            chosen = {}
            for agent, (policy, slot) in episode.acting.items():
                chosen[agent] = rows[policy][slot]
                self.executed_by[policy] += 1
            self.executed += 1
            steps = environment.step(chosen)
            episode.length += 1
            self._show(episode, environment, steps)
        return self._timesteps()

    def take_episodes(self) -> list[MultiAgentEpisode]:
        """Returns the episodes that have ended since the last call, in the order of their ends."""
        ended, self._ended = self._ended, []
        return ended

    def use(self, policy: str) -> bool:
        """Returns whether an agent has this policy in the current episode of any environment."""
        return any(policy in episode.used for episode in self._current)

    def keep_infos(self) -> None:
        """Makes every later `reset` and `step` store the libraries' infos in `infos`."""
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        """Sets the task that every environment takes at its next reset, also inside `step`; None for its own task.

        Raises:
          CallboardError: these environments have no tasks, or not this one.
        """
        for environment in self._environments:
            environment.set_task(task)
        self._task = task

    @property
    def frames_per_second(self) -> float | None:
        """Frame rate at which rendered timesteps play in real time; None if the environment does not define one."""
        return self._environments[0].frames_per_second

    def render(self) -> np.ndarray:
        """Renders environment 0 as an image, uint8 `[H, W, 3]`.

        Raises:
          CallboardError: if the environment cannot be rendered.
        """
        return self._environments[0].render()

    def close(self) -> None:
        """Closes all environments.  A second call does nothing."""
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()

    def _count_nothing(self) -> None:
        self.executed = 0
        self.executed_by = dict.fromkeys(self.slots, 0)

    def _begin(self, episode: "_CurrentEpisode", environment: MultiAgentEnvironment) -> None:
        seed = episode.begin(self._mapping, self._task)
        self._show(episode, environment, environment.reset(seed))

    def _show(
        self, episode: "_CurrentEpisode", environment: MultiAgentEnvironment, steps: Mapping[str, AgentStep]
    ) -> None:
        """Puts what the agents of one environment received into the columns of their policies."""
        is_over, was_acting, episode.acting = environment.is_over, episode.acting, {}
        for agent, step in steps.items():
            policy, slot = place = episode.places[agent]
            is_first = agent not in was_acting
            is_last = bool(step.terminated or step.truncated or is_over)
            columns = self._columns[policy]
            columns.observation[slot] = step.observation
            columns.first[slot] = is_first
            columns.last[slot] = is_last
            if is_first:
                if step.reward and not self._has_warned:
                    self._has_warned = True
                    logging.warning(
                        "agent %r gets the reward %g where it appears, which is for none of its actions: it is ignored",
                        agent,
                        step.reward,
                    )
                episode.returns.setdefault(agent, 0.0)
            else:
                columns.reward[slot] = step.reward
                columns.discount[slot] = 0.0 if step.terminated else 1.0
                episode.returns[agent] += step.reward
            if not is_last:
                episode.acting[agent] = place
            if self._keeps_infos:
                (columns.begun if is_first else columns.followed)[slot] = step.info
        if is_over:
            policies = {agent: episode.places[agent][0] for agent in episode.returns}
            self._ended.append(
                MultiAgentEpisode(episode.index, episode.length, episode.returns, policies, episode.task)
            )

    def _timesteps(self) -> dict[str, Timestep]:
        if self._keeps_infos:
            self.infos = {policy: Infos(one.followed, one.begun) for policy, one in self._columns.items()}
        return {policy: columns.take() for policy, columns in self._columns.items()}


class _CurrentEpisode:
    """The episode of one environment.

    Attributes:
      length: number of steps.
      places: the policy of each agent, and its slot there.
      acting: the same for the agents that act in the next step.
      used: the policies of all agents.
      returns: sum of rewards of each agent that has appeared.
      task: the task that had last been set when it began.
    """

    def __init__(self, index: int, agents: Sequence[str], slots: Mapping[str, PolicySlots], seed: int):
        self.index = index
        self._agents = agents
        self._slots = {
            policy: {agent: index * len(own.agents) + place for place, agent in enumerate(own.agents)}
            for policy, own in slots.items()
        }
        self._seed: int | None = seed
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self._episode = -1
        self.length = 0
        self.places: dict[str, tuple[str, int]] = {}
        self.acting: dict[str, tuple[str, int]] = {}
        self.used: set[str] = set()
        self.returns: dict[str, float] = {}
        self.task: Task = None

    def begin(self, mapping: PolicyMapping, task: Task) -> int | None:
        """Begins an episode: chooses policies.  Returns the seed of the environment's reset."""
        self._episode += 1
        self.length, self.acting, self.returns, self.task = 0, {}, {}, task
        policies = {agent: mapping(agent, self._episode, self._rng) for agent in self._agents}
        self.places = {agent: (policy, self._slots[policy][agent]) for agent, policy in policies.items()}
        self.used = set(policies.values())
        # Only the first reset is seeded; otherwise every episode would begin in the same state.
        seed, self._seed = self._seed, None
        return seed


class _Columns:
    """One timestep of a policy's slots, which shows absent agents until something else is put in."""

    def __init__(self, slots: PolicySlots, environments: int):
        spec, count = slots.spec, environments * len(slots.agents)
        # The arrays of environments with several agents are those that agents see.
        self._observation, self._action = encoding.encoding_of(EnvironmentSpec(spec.observation, spec.action))
        self._absent = absent_observation(spec)
        self._count = count
        self._clear()

    def split(self, actions: Nest) -> list[Any]:
        """Returns the action of each slot."""
        return encoding.split(self._action, actions, self._count)

    def take(self) -> Timestep:
        """Returns the timestep and begins another."""
        timestep = Timestep(
            observation=encoding.stack(self._observation, self.observation),
            reward=self.reward,
            discount=self.discount,
            first=self.first,
            last=self.last,
        )
        self._clear()
        return timestep

    def _clear(self) -> None:
        self.observation: list[Nest] = [self._absent] * self._count
        self.reward = np.zeros(self._count, np.float32)
        self.discount = np.ones(self._count, np.float32)
        self.first = np.ones(self._count, np.bool_)
        self.last = np.ones(self._count, np.bool_)
        self.followed: list[Info] = no_infos(self._count)
        self.begun: list[Info] = no_infos(self._count)


def make_policy_batches(
    env: Factory,
    count: int,
    seeds: Sequence[int],
    options: Mapping[str, Any] | None,
    mapping: PolicyMapping,
    policies: Sequence[str],
    slots: Sequence[int] | None = None,
    actor: int | None = None,
    groups: Groups | None = None,
    agent_index: bool = False,
    state: State | None = None,
    padding: bool = False,
) -> PolicyBatches:
    """Makes `count` environments with several agents, presented per policy.

    Args:
      env: as in `make_multi_agent`, which also explains `options`, `actor`, `groups`, `agent_index`, `state` and
        `padding`.
      count: the number of environments.
      seeds: one seed per environment.
      options: options of the environment.
      mapping: chooses the policy of each agent.
      policies: names of all policies.
      slots: the index of each environment among those of the run's actors; by default from 0 on.
      actor: index of the actor that steps the environments, if one does.
      groups: groups of agents that become one agent each.
      agent_index: whether observations contain the agent's index.
      state: what the leaf `state` of observations contains, if there is one.
      padding: whether agents get the same spaces.

    Raises:
      CallboardError: as in `make_multi_agent` and `PolicyBatches`.
    """
    check_seeds(count, seeds)
    own = {"groups": groups, "agent_index": agent_index, "state": state, "padding": padding}
    environments = make_separate_agents(env, seeds, options, slots, actor, bounds=AgentBounds(), **own)
    try:
        return PolicyBatches(environments, mapping, policies, seeds)
    except BaseException:
        for environment in environments:
            environment.close()
        raise
