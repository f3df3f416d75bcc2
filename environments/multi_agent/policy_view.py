"""Environments as the policies that play in them see them, whether they have one agent or several."""

from collections.abc import Mapping
from typing import Protocol

from ...data import Nest, Timestep
from ..batches.batched import BatchedEnvironment
from ..batches.infos import Infos
from .policy_slots import ONLY_AGENT, MultiAgentEpisode


class PolicyView(Protocol):
    """Divides the timesteps of a batch of environments among policies, and joins their actions.

    `JointBatch` does it for environments with several agents.
    """

    def split(self, timestep: Timestep) -> Mapping[str, Timestep]:
        """Returns the timesteps of the slots of each policy, given the newest one of the environments."""

    def infos_of(self, environment: BatchedEnvironment) -> Mapping[str, Infos]:
        """Returns the infos of the newest timestep of the slots of each policy; none unless they are kept.

        Args:
          environment: the batch, with whatever is wrapped around it.
        """

    def join(self, actions: Mapping[str, Nest]) -> Nest:
        """Returns the actions for the environments, given those of each policy."""

    def in_use(self, policy: str) -> bool:
        """Returns whether an agent has this policy in the current episode of any environment."""

    @property
    def executed_by(self) -> Mapping[str, int]:
        """Actions executed in the last step, by policy; empty where they are those of the environments."""

    def take_episodes(self) -> list[MultiAgentEpisode]:
        """Returns the episodes that have ended since the last call, if they have returns by agent."""


class OneAgentView:
    """The view of the only policy of environments with one agent, whose batch is that of the environments.

    A `JointBatch` of environments with one agent would do the same, and steps them one by one in Python, where their
    library steps the whole batch in one call.
    """

    executed_by: Mapping[str, int] = {}

    def split(self, timestep: Timestep) -> Mapping[str, Timestep]:
        return {ONLY_AGENT: timestep}

    def infos_of(self, environment: BatchedEnvironment) -> Mapping[str, Infos]:
        infos = environment.infos
        return {} if infos is None else {ONLY_AGENT: infos}

    def join(self, actions: Mapping[str, Nest]) -> Nest:
        return actions[ONLY_AGENT]

    def in_use(self, policy: str) -> bool:
        return True

    def take_episodes(self) -> list[MultiAgentEpisode]:
        return []
