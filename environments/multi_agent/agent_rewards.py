"""Rewards of agents in steps in which they are not observed."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import CallboardError, check_text, type_text, unknown
from ..batches.given_observations import one_number

_LARGEST = float(np.finfo(np.float32).max)


class AgentRewards:
    """Finds for each reward that an environment gives an agent the transition that it belongs to.

    A reward belongs to the agent's action in the same step, whose transition needs the observation that follows, unless
    the agent terminated: nothing is bootstrapped from what it would see then.  Where there is no such transition,
    because the agent did not act or is not observed, the reward is kept and added to that of the agent's next one.

    Args:
      name: the environment's name, for messages.
      agents: the environment's own names of its agents, by the names that Callboard uses.

    Raises:
      CallboardError: two agents have the same name as text, or the name of one is no text in UTF-8.
    """

    def __init__(self, name: str, agents: Iterable[Any]):
        agents = list(agents)
        self.ids = {str(agent): agent for agent in agents}
        if len(self.ids) < len(agents):
            raise CallboardError(f"{name} has agents that have the same name as text: {agents!r}; rename one of them")
        for agent in self.ids:
            check_text(agent, f"{name} has the agent")
        self._name = name
        self._known = set(agents)
        self._kept: dict[str, float] = {}
        self._ended: set[str] = set()
        self._without: set[str] = set()

    def begin(self) -> None:
        """Begins an episode."""
        self._kept.clear()
        self._ended.clear()

    def check_agents(self, given: Any, what: str) -> None:
        """Raises `CallboardError` if what the environment gives is no mapping, or has keys that are no agents of it."""
        if not isinstance(given, Mapping):
            raise CallboardError(f"the {what} of {self._name} are {type_text(given)}, not a dictionary by agent")
        if not given.keys() <= self._known:
            agent = next(key for key in given if key not in self._known)
            raise unknown(f"agent in the {what} of {self._name}:", str(agent), self.ids)

    def number(self, reward: Any, agent: str) -> float:
        """Returns a reward as a float; raises `CallboardError` if it is no finite number."""
        return finite_reward(self._name, agent, reward)

    def given(self, rewards: Mapping[Any, Any], agent: str, has_transition: bool) -> float:
        """Returns the reward of an agent, 0 if it has none; logs once that it has none for a transition."""
        id = self.ids[agent]
        if id in rewards:
            return self.number(rewards[id], agent)
        if has_transition and agent not in self._without:
            self._without.add(agent)
            logging.warning(
                "'step' of %s gives agent %r, which has acted, no reward: it counts as 0, let 'step' give it one",
                self._name,
                agent,
            )
        return 0.0

    def of_transition(self, agent: str, reward: float) -> float:
        """Returns the reward of a transition of an agent: the one that is given, and those that were kept."""
        return reward + self._kept.pop(agent, 0.0) if self._kept else reward

    def keep(self, agent: str, reward: float) -> None:
        """Keeps a reward for which there is no transition in this step.  The agent's part continues."""
        if reward:
            self._kept[agent] = self._kept.get(agent, 0.0) + reward

    def end(self, agent: str, reward: float = 0.0) -> None:
        """Ends the part of an agent in a step in which it has no transition.

        Raises:
          CallboardError: there are rewards that then belong to none.
        """
        lost = self.of_transition(agent, reward)
        if lost:
            raise CallboardError(
                f"'step' of {self._name} gives agent {agent!r} the reward {lost:g}, and its part ends without an "
                "observation of it: return the agent's observation in each step from its first to its last one"
            )

    def end_all(self) -> None:
        """Ends the episode; raises `CallboardError` as `end` does."""
        for agent in list(self._kept):
            self.end(agent)

    def after_end(self, agent: str, reward: float) -> None:
        """Logs, once for an agent, that a reward which it gets after its end is not learned from."""
        if reward and agent not in self._ended:
            self._ended.add(agent)
            logging.warning(
                "%s gives agent %r the reward %g after its part has ended: it is ignored", self._name, agent, reward
            )


def finite_reward(name: str, agent: str, reward: Any, method: str = "step") -> float:
    """Returns the reward of an agent as a float.

    Args:
      name: the environment's name.
      agent: the agent.
      reward: what the environment gives.
      method: the method that gave it, `reset` or `step`.

    Raises:
      CallboardError: it is no number, or none that float32 holds.
    """
    number = one_number(reward)
    if number is None or not abs(number) <= _LARGEST:
        kind = "number" if number is None else "finite number of float32"
        raise CallboardError(f"{method!r} of {name} gives agent {agent!r} the reward {reward!r}: it must be a {kind}")
    return number
