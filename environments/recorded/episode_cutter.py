"""Cuts blocks of timesteps of a batch of environments into episodes."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree
from gymnasium import spaces

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.encoding import encoding_of
from .chosen_infos import InfoColumns, TimestepInfos
from .episode_columns import DISCOUNTS, ColumnLeaf, EpisodeColumns, leaves_of
from .native_values import native_values, part_name, space_of

_OPEN_BYTES = 2**30
"""Memory that open episodes may take; longer ones are not recorded."""
NO_INFOS = TimestepInfos([], [])


class Step(NamedTuple):
    """An action, the timestep that followed, and the infos that are recorded with it."""

    action: Nest
    timestep: Timestep
    infos: TimestepInfos = NO_INFOS


class _Block(NamedTuple):
    """Some consecutive rows of a batch; a row is an action, and the observations before and after it."""

    first: int
    """Number of its first row since the batch began."""
    observations: list[ColumnLeaf]
    """The environment's own values, `[rows + 1, B, ...]`."""
    actions: list[ColumnLeaf]
    """The same of the actions, `[rows, B, ...]`."""
    rewards: np.ndarray
    """`[rows, B]`."""
    discounts: np.ndarray
    """`[rows, B]`."""
    infos: list[list[list[Any]]]
    """`[rows, names, B]`, chosen infos of the actions."""

    @property
    def end(self) -> int:
        """Number of the first row after it."""
        return self.first + len(self.rewards)


class EpisodeCutter:
    """Cuts what a batch of environments does into episodes.

    An episode that was cut off, and whose last observation its library has lost, ends one action earlier.

    Args:
      spec: spec of the environments.
      seeds: the seed of each environment's first episode; None for environments that were reset without one.
      notify: takes a line for the user.
      quota: number of episodes of each environment, the first ones; None for all.
      infos: makes columns of the infos that come with timesteps; None if there are none.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        seeds: Sequence[int | None],
        notify: Callable[[str], object],
        quota: int | None = None,
        infos: InfoColumns | None = None,
    ):
        self._infos = infos or InfoColumns((), "")
        self._encoding = encoding_of(spec)
        self._spaces = space_of(self._encoding.observation), space_of(self._encoding.action)
        self._seeds = list(seeds)
        self._left = [math.inf if quota is None else quota] * len(self._seeds)
        self._notify = notify
        self._blocks: list[_Block] = []
        self._next = 0
        """Number of the next row."""
        self._begun: list[int | None] = []
        """The row in which each environment's episode began; None for one that is not recorded."""
        self._first_infos: list[list[Any]] = []
        """`[B, names]`, chosen infos of the reset with which each environment's episode began."""
        self._observation: Nest = ()
        self._last = np.zeros(0, np.bool_)
        self._row_bytes = 1
        self._reported_length = False

    def begin(self, timestep: Timestep, infos: TimestepInfos = NO_INFOS) -> None:
        """Takes the first timestep of all environments; open episodes are left out."""
        self._blocks, self._next = [], 0
        self._begun = [0] * len(timestep.first)
        self._first_infos = [[values[env] for values in infos.begun] for env in range(len(timestep.first))]
        self._observation, self._last = timestep.observation, timestep.last
        self._row_bytes = observation_bytes(timestep)

    def cut(self, steps: Sequence[Step]) -> Iterator[EpisodeColumns]:
        """Takes what followed, and yields the episodes that have ended with it."""
        first = self._next
        observed = [self._observation, *(step.timestep.observation for step in steps)]
        observation, action = self._spaces
        block = _Block(
            first,
            self._leaves("observations", observation, native_values(self._encoding.observation, _joined(observed))),
            self._leaves("actions", action, native_values(self._encoding.action, _joined([s.action for s in steps]))),
            np.stack([step.timestep.reward for step in steps]).astype(np.float32, copy=False),
            np.stack([step.timestep.discount for step in steps]).astype(np.float32, copy=False),
            [step.infos.followed for step in steps],
        )
        self._blocks.append(block)
        self._next = block.end
        self._row_bytes = observation_bytes(steps[0].timestep) + steps[0].infos.nbytes
        last = np.stack([self._last, *(step.timestep.last for step in steps)])
        ended = last[1:] | np.stack([step.timestep.first for step in steps])
        for row, env in np.argwhere(ended).tolist():
            timestep, infos, end = steps[row].timestep, steps[row].infos, first + row + 1
            terminated = not timestep.discount[env]
            if last[row, env]:
                # The action was ignored: the next episode begins after it.
                self._begin_episode(env, end, infos)
            elif not timestep.first[env]:
                yield from self._end(env, end, terminated)
                self._begun[env] = None
            else:
                # Its final observation is lost.  Nothing depends on it after a termination.
                yield from self._end(env, end if terminated else end - 1, terminated, is_lost=terminated)
                self._begin_episode(env, end, infos)
        self._observation, self._last = observed[-1], last[-1]
        self._trim()

    def _begin_episode(self, env: int, row: int, infos: TimestepInfos) -> None:
        self._begun[env] = row
        self._first_infos[env] = [values[env] for values in infos.begun]

    def _leaves(self, name: str, space: spaces.Space[Any], values: Nest) -> list[ColumnLeaf]:
        """Returns the arrays of a nest `[T * B, ...]` of the environment's own values, as `[T, B, ...]`."""
        envs = len(self._begun)
        return [
            leaf._replace(values=leaf.values.reshape(-1, envs, *leaf.values.shape[1:]))
            for leaf in leaves_of(space, values, name)
        ]

    def _end(self, env: int, end: int, terminated: bool, is_lost: bool = False) -> Iterator[EpisodeColumns]:
        """Yields the episode of an environment whose last row is the one before `end`, if it is recorded.

        Args:
          is_lost: whether its last observation is lost, so that the one before stands for it.
        """
        begun, seed = self._begun[env], self._seeds[env]
        self._seeds[env] = None
        if begun is None or not self._left[env]:
            return
        self._left[env] -= 1
        if end == begun:
            return
        blocks = [block for block in self._blocks if block.first < end and block.end > begun]
        rows = [(max(begun - block.first, 0), min(end, block.end) - block.first) for block in blocks]

        def column(leaves: Sequence[ColumnLeaf], final: bool) -> ColumnLeaf:
            parts = [leaf.values[a:b, env] for leaf, (a, b) in zip(leaves, rows, strict=True)]
            if final:
                at = rows[-1][1] - is_lost
                parts.append(leaves[-1].values[at : at + 1, env])
            return leaves[0]._replace(values=np.concatenate(parts))

        infos = [row for block, (a, b) in zip(blocks, rows, strict=True) for row in block.infos[a:b]]
        columns = [
            *(column(leaves, True) for leaves in zip(*(block.observations for block in blocks), strict=True)),
            *(column(leaves, False) for leaves in zip(*(block.actions for block in blocks), strict=True)),
        ]
        ends = {name: np.zeros(end - begun, np.bool_) for name in ("terminations", "truncations")}
        ends["terminations" if terminated else "truncations"][-1] = True
        rewards, discounts = (
            np.concatenate([getattr(block, name)[a:b, env] for block, (a, b) in zip(blocks, rows, strict=True)])
            for name in ("rewards", "discounts")
        )
        values = {
            **{leaf.path: leaf.column() for leaf in columns},
            "rewards": rewards,
            **ends,
            **self._info_columns(env, infos),
        }
        if (discounts != ~ends["terminations"]).any():
            values[DISCOUNTS] = discounts
        yield EpisodeColumns(values, end - begun, seed)

    def _info_columns(self, env: int, rows: Sequence[list[list[Any]]]) -> dict[str, np.ndarray]:
        """Returns the columns of the chosen infos of an episode: of the reset, and of each of its actions."""
        return {
            f"infos/{part_name(name)}": self._infos.column(
                name, [self._first_infos[env][place], *(row[place][env] for row in rows)]
            )
            for place, name in enumerate(self._infos.names)
        }

    def _trim(self) -> None:
        """Forgets blocks of no open episode, and episodes that take too much memory."""
        most = _OPEN_BYTES // self._row_bytes
        for env, begun in enumerate(self._begun):
            if begun is not None and self._next - begun > most:
                self._begun[env] = None
                if not self._reported_length:
                    self._reported_length = True
                    self._notify(f"an episode is longer than {most:,} steps, more than is kept: it is not recorded")
        first = min((begun for begun in self._begun if begun is not None), default=self._next)
        self._blocks = [block for block in self._blocks if block.end > first]


def observation_bytes(timestep: Timestep) -> int:
    """Returns the bytes of the observations of a batch, at least 1."""
    return 1 + sum(leaf.nbytes for leaf in tree.flatten(timestep.observation))


def _joined(nests: Sequence[Nest]) -> Nest:
    """Returns nests of arrays `[B, ...]` as one of `[T * B, ...]`."""
    return tree.map_structure(lambda *leaves: np.concatenate(leaves), *nests)
