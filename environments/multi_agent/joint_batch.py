"""Environments with several agents as one batch, whose actions and observations are those of all policies."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment
from ..batches.infos import Info, Infos
from ..batches.tasks import Task
from .policy_batches import PolicyBatches
from .policy_slots import MultiAgentEpisode


class JointBatch(BatchedEnvironment):
    """B environments with several agents, stepped as a whole.

    Actions and observations are nests by policy, of arrays `[slots, ...]`.  The reward of an environment is the sum of
    the rewards of its agents, `first` and `last` are those of its episodes.  `by_policy` has the timesteps of the
    policies.  An info has what the agents' infos contain: by `agent/key`, and by `key` the mean over the agents.

    Args:
      batches: the environments by policy.
      counted: the policies whose agents' rewards count, normally those that learn.
    """

    def __init__(self, batches: PolicyBatches, counted: Collection[str]):
        self.batches = batches
        self.by_policy: dict[str, Timestep] = {}
        """The newest timestep of each policy's slots."""
        self._counted = [policy for policy in batches.slots if policy in counted]
        self._was_over = np.zeros(batches.batch_size, np.bool_)
        self._spec = EnvironmentSpec(
            {policy: slots.spec.observation for policy, slots in batches.slots.items()},
            {policy: slots.spec.action for policy, slots in batches.slots.items()},
        )

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return self.batches.batch_size

    @property
    def environments(self) -> Sequence[Any]:
        return self.batches.environments

    def reset(self) -> Timestep:
        self.by_policy = self.batches.reset()
        return self._joint(np.ones(self.batch_size, np.bool_))

    def step(self, actions: Mapping[str, Nest]) -> Timestep:
        self.by_policy = self.batches.step(actions)
        return self._joint(self._was_over)

    def split(self, timestep: Timestep) -> Mapping[str, Timestep]:
        """Returns `by_policy`; the timestep must be the newest one."""
        return self.by_policy

    def infos_of(self, environment: BatchedEnvironment) -> Mapping[str, Infos]:
        """Returns the infos of the newest timestep of the slots of each policy; none unless they are kept."""
        return self.batches.infos or {}

    def join(self, actions: Mapping[str, Nest]) -> Nest:
        """Returns the actions by policy as those of the environments."""
        return dict(actions)

    def in_use(self, policy: str) -> bool:
        """Returns whether an agent has this policy in the current episode of any environment."""
        return self.batches.use(policy)

    @property
    def executed_by(self) -> Mapping[str, int]:
        """Actions executed in the last step, by policy."""
        return self.batches.executed_by

    def take_episodes(self) -> list[MultiAgentEpisode]:
        """Returns the episodes that have ended since the last call."""
        return self.batches.take_episodes()

    def keep_infos(self) -> None:
        self.batches.keep_infos()

    @property
    def infos(self) -> Infos | None:  # type: ignore[override]
        found = self.batches.infos
        if found is None:
            return None
        return Infos(
            self._joint_infos({policy: infos.followed for policy, infos in found.items()}),
            self._joint_infos({policy: infos.begun for policy, infos in found.items()}),
        )

    def set_task(self, task: Task) -> None:
        self.batches.set_task(task)

    @property
    def frames_per_second(self) -> float | None:
        return self.batches.frames_per_second

    def render(self) -> np.ndarray:
        return self.batches.render()

    def close(self) -> None:
        self.batches.close()

    def _joint(self, first: np.ndarray) -> Timestep:
        over = self._was_over = self.batches.over
        reward = np.zeros(self.batch_size, np.float32)
        discount = np.ones(self.batch_size, np.float32)
        for policy, timestep in self.by_policy.items():
            if policy in self._counted:
                reward += timestep.reward.reshape(self.batch_size, -1).sum(axis=1)
            discount = np.minimum(discount, timestep.discount.reshape(self.batch_size, -1).min(axis=1))
        return Timestep(
            observation={policy: timestep.observation for policy, timestep in self.by_policy.items()},
            reward=reward,
            discount=np.where(over, discount, 1.0).astype(np.float32),
            first=first,
            last=over,
        )

    def _joint_infos(self, infos: Mapping[str, Sequence[Info]]) -> list[Info]:
        """Returns the info of each environment, from the infos of the slots of each policy."""
        joint: list[dict[str, Any]] = [{} for _ in range(self.batch_size)]
        for index, info in enumerate(joint):
            values: dict[str, list[float]] = {}
            for policy, of_slots in infos.items():
                agents = self.batches.slots[policy].agents
                for place, agent in enumerate(agents):
                    for key, value in of_slots[index * len(agents) + place].items():
                        info[f"{agent}/{key}"] = value
                        if isinstance(value, int | float | np.number | np.bool_):
                            values.setdefault(key, []).append(float(value))
            info.update({key: float(np.mean(of_agents)) for key, of_agents in values.items()})
        return list(joint)
