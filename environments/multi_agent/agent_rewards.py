"""Rewards of agents in steps in which they are not observed."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import CallboardError, check_text, unknown


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

    def begin(self) -> None:
        """Begins an episode."""
        self._kept.clear()
        self._ended.clear()

    def check_agents(self, given: Mapping[Any, Any], what: str) -> None:
        """Raises `CallboardError` if a mapping that the environment gives has keys that are no agents of it."""
        if not given.keys() <= self._known:
            agent = next(key for key in given if key not in self._known)
            raise unknown(f"agent in the {what} of {self._name}:", str(agent), self.ids)

    def number(self, reward: Any, agent: str) -> float:
        """Returns a reward as a float; raises `CallboardError` if it is no number."""
        try:
            return float(reward)
        except (TypeError, ValueError) as error:
            raise CallboardError(
                f"'step' of {self._name} gives agent {agent!r} the reward {reward!r}: it must be a number"
            ) from error

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
