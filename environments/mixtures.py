"""Several environments in one run: their shares of the slots, and batches that mix them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree

from ..data import Nest, Timestep, rebuilt
from ..errors import CallboardError
from ..settings.setting_types import PositiveFloat, check_ranges, converted
from ..specs import EnvironmentSpec
from .batches.batched import BatchedEnvironment
from .batches.infos import Infos
from .batches.tasks import Task
from .python_factory import named_factory
from .workers.interpreters import PYTHON, absolute_interpreter


@dataclasses.dataclass(frozen=True)
class WeightedEnvironment:
    """One of several environments of a run, all with equal spaces.

    Attributes:
      name: name of the environment, or a class or function that makes it.
      weight: its share of the slots, relative to the others' weights.
      options: its own options; they come before those of the run.
    """

    name: str | Callable[..., Any]
    weight: PositiveFloat = 1.0
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ranges(self, "env.")
        name, options = named_factory(self.name)
        object.__setattr__(self, "name", name)
        options = {**options, **self.options}
        if PYTHON in options:
            options[PYTHON] = absolute_interpreter(options[PYTHON])
        object.__setattr__(self, "options", options)


def read_mixture(entries: Sequence[Any]) -> tuple[WeightedEnvironment, ...]:
    """Returns the environments in a list of names, classes or functions, mappings and `WeightedEnvironment`s.

    Raises:
      CallboardError: the list is empty, or an entry is something else.
    """
    if not entries:
        raise CallboardError("env is an empty list: name at least one environment")

    def read(entry: Any) -> WeightedEnvironment:
        if isinstance(entry, Mapping):
            return converted("env", entry, WeightedEnvironment)
        return entry if isinstance(entry, WeightedEnvironment) else WeightedEnvironment(entry)

    return tuple(map(read, entries))


def environment_of_slots(weights: Sequence[float], count: int) -> np.ndarray:
    """Returns the index of the environment in each slot from 0 to `count` - 1.

    A slot gets the environment that lacks most to its share of all slots so far, the first one of several; so every
    beginning of the slots has the environments in proportion, and each actor gets a mixture of them.

    Args:
      weights: weights of the environments, above 0.
      count: the number of slots.
    """
    relative = np.asarray(weights, np.float64) / np.max(weights)  # Sums of large weights are infinite.
    shares = relative / np.sum(relative)
    lacking = np.zeros(len(shares))
    chosen = np.zeros(count, np.int64)
    for slot in range(count):
        lacking += shares
        # Sums of shares that are equal in exact numbers differ by their rounding.
        chosen[slot] = index = int(np.argmax(np.round(lacking, 9)))
        lacking[index] -= 1.0
    return chosen


class MixturePart(NamedTuple):
    """The environments of one kind in a mixed batch."""

    environment: BatchedEnvironment
    rows: np.ndarray
    """Increasing ints: which environments of the whole batch these are."""


class MixedBatch(BatchedEnvironment):
    """Several batches of environments with equal specs as one batch; they are stepped one after the other.

    Args:
      parts: the batches; their rows together are those of the whole batch.  `close` closes them.
    """

    def __init__(self, parts: Sequence[MixturePart]):
        self._parts = tuple(parts)
        self._order = np.argsort(np.concatenate([part.rows for part in parts]))
        self._keeps_infos = False
        self.has_own_seeds = all(part.environment.has_own_seeds for part in parts)

    @property
    def spec(self) -> EnvironmentSpec:
        return self._parts[0].environment.spec

    @property
    def batch_size(self) -> int:
        return len(self._order)

    def reset(self) -> Timestep:
        return self._merged([part.environment.reset() for part in self._parts])

    def step(self, actions: Nest) -> Timestep:
        return self._merged([part.environment.step(_rows_of(actions, part.rows)) for part in self._parts])

    def keep_infos(self) -> None:
        for part in self._parts:
            part.environment.keep_infos()
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        for part in self._parts:
            part.environment.set_task(task)

    @property
    def frames_per_second(self) -> float | None:
        return self._shown.frames_per_second

    def render(self) -> np.ndarray:
        return self._shown.render()

    @property
    def environments(self) -> Sequence[Any]:
        ordered: list[Any] = [None] * self.batch_size
        for part in self._parts:
            own = part.environment.environments
            for index, row in enumerate(part.rows):
                # A batch without separate objects stands for each of them.
                ordered[row] = own[index if len(own) == len(part.rows) else 0]
        return ordered

    def close(self) -> None:
        for part in self._parts:
            part.environment.close()

    @property
    def _shown(self) -> BatchedEnvironment:
        """The part with environment 0."""
        return next(part.environment for part in self._parts if part.rows[0] == 0)

    def _merged(self, timesteps: Sequence[Timestep]) -> Timestep:
        if self._keeps_infos:
            infos = [part.environment.infos for part in self._parts]
            columns = [
                [row for info in infos if info is not None for row in getattr(info, name)] for name in Infos._fields
            ]
            self.infos = Infos(*([column[index] for index in self._order] for column in columns))
        leaves = zip(*map(tree.flatten, timesteps), strict=True)
        return rebuilt(timesteps[0], (np.concatenate(columns)[self._order] for columns in leaves))


def _rows_of(actions: Nest, rows: np.ndarray) -> Nest:
    return tree.map_structure(lambda leaf: np.asarray(leaf)[rows], actions)
