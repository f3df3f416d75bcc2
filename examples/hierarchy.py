"""A hierarchy of two agents: a manager sets goals for a worker, at a slower rate.

Both learn at once, each with a policy of its own.  Run from the root of the repository:

    callboard train --recipe examples/hierarchy.yaml
"""

from collections.abc import Mapping

import numpy as np
from dm_env import specs

from callboard.environments import AgentStep, MultiAgentEnvironment
from callboard.specs import EnvironmentSpec

SIZE = 7
WALL = 3
DOORS = ((3, 1), (3, 5), (1, 3), (5, 3))
CENTERS = ((1, 1), (5, 1), (1, 5), (5, 5))
"""Column and row of the center of each room."""
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


class KeyAndChest(MultiAgentEnvironment):
    """Four rooms with a key in the center of one and a chest in that of another; the key opens the chest.

    The `manager` sees in which rooms the walker, the key and the chest are, and chooses a room.  The `worker` sees the
    walker's cell and the chosen room, and moves the walker by one cell in each step.  It earns 1 for arriving in the
    center of the chosen room, which ends its part, as does a time limit of `patience` steps.  Then the manager chooses
    again.  The manager earns 1 when the chest opens, which ends the episode; it may choose 4 times, and 2 suffice.

    The worker appears whenever there is a goal.  The manager is always there, since an agent that disappears learns
    nothing from what follows; while it waits, its `action_mask` allows a single action, which has no effect.

    Args:
      seed: seed of the rooms.
      patience: the worker's time limit; the longest way takes 8 steps.
    """

    agents = ("manager", "worker")

    def __init__(self, seed: int = 0, patience: int = 12):
        self._random = np.random.default_rng(seed)
        self._patience = patience
        rooms, cells = len(CENTERS), SIZE * SIZE
        manager = {
            "room": specs.DiscreteArray(rooms),
            "key": specs.DiscreteArray(rooms),
            "chest": specs.DiscreteArray(rooms),
            "has_key": specs.DiscreteArray(2),
            "action_mask": specs.BoundedArray((rooms,), np.int8, 0, 1),
        }
        worker = {"cell": specs.DiscreteArray(cells), "goal": specs.DiscreteArray(rooms)}
        self.specs = {
            "manager": EnvironmentSpec(manager, specs.DiscreteArray(rooms)),
            "worker": EnvironmentSpec(worker, specs.DiscreteArray(len(MOVES))),
        }

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        start, self._key, self._chest = (int(room) for room in self._random.permutation(len(CENTERS))[:3])
        self._place, self._has_key = CENTERS[start], False
        self._goal: int | None = None
        self._choices = self._time = 0
        self.is_over = False
        return {"manager": AgentStep(self._manager_sees())}

    def step(self, actions: Mapping[str, int]) -> dict[str, AgentStep]:
        if self._goal is None:
            self._goal = int(actions["manager"])
            self._choices, self._time = self._choices + 1, 0
            return {"manager": AgentStep(self._manager_sees()), "worker": AgentStep(self._worker_sees())}
        self._time += 1
        self._move(MOVES[int(actions["worker"])])
        arrived = self._place == CENTERS[self._goal]
        worker = AgentStep(self._worker_sees(), float(arrived), arrived, not arrived and self._time == self._patience)
        opened = False
        if worker.terminated or worker.truncated:
            self._goal = None
            self._has_key |= self._place == CENTERS[self._key]
            opened = self._has_key and self._place == CENTERS[self._chest]
        out_of_choices = self._goal is None and self._choices == 4 and not opened
        self.is_over = opened or out_of_choices
        manager = AgentStep(self._manager_sees(), float(opened), opened, out_of_choices, {"opened": opened})
        return {"manager": manager, "worker": worker}

    def _move(self, direction: tuple[int, int]) -> None:
        column, row = (place + change for place, change in zip(self._place, direction, strict=True))
        inside = 0 <= column < SIZE and 0 <= row < SIZE
        if inside and (WALL not in (column, row) or (column, row) in DOORS):
            self._place = (column, row)

    def _manager_sees(self) -> dict[str, np.ndarray]:
        column, row = self._place
        mask = np.ones(len(CENTERS), np.int8)
        if self._goal is not None:
            mask[1:] = 0
        return {
            "room": np.array((column > WALL) + 2 * (row > WALL), np.int32),
            "key": np.array(self._key, np.int32),
            "chest": np.array(self._chest, np.int32),
            "has_key": np.array(self._has_key, np.int32),
            "action_mask": mask,
        }

    def _worker_sees(self) -> dict[str, np.ndarray]:
        column, row = self._place
        return {"cell": np.array(column + SIZE * row, np.int32), "goal": np.array(self._goal, np.int32)}
