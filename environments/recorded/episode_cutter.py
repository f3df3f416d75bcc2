"""Cuts blocks of timesteps of a batch of environments into episodes."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tree

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.encoding import encoding_of
from .episode_columns import EpisodeColumns, Leaf, leaves_of
from .native_values import native_values, space_of

_OPEN_BYTES = 2**30
"""Memory that open episodes may take; longer ones are not recorded."""

Step = tuple[Nest, Timestep]
"""An action, and the timestep that followed."""


class _Block(NamedTuple):
    """What the batch did in some consecutive rows; a row is an action, and the observations before and after it."""

    first: int
    """Number of its first row since the batch began."""
    observations: list[Leaf]
    """The environment's own values, `[rows + 1, B, ...]`."""
    actions: list[Leaf]
    """The same of the actions, `[rows, B, ...]`."""
    rewards: np.ndarray
    """`[rows, B]`."""

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
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        seeds: Sequence[int | None],
        notify: Callable[[str], object],
        quota: int | None = None,
    ):
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
        self._observation: Nest = ()
        self._last = np.zeros(0, np.bool_)
        self._row_bytes = 1
        self._reported_length = False

    def begin(self, timestep: Timestep) -> None:
        """Takes the first timestep of all environments; open episodes are left out."""
        self._blocks, self._next = [], 0
        self._begun = [0] * len(timestep.first)
        self._observation, self._last = timestep.observation, timestep.last
        self._row_bytes = 1 + sum(leaf.nbytes for leaf in tree.flatten(timestep.observation))

    def cut(self, steps: Sequence[Step]) -> Iterator[EpisodeColumns]:
        """Takes what followed, and yields the episodes that have ended with it."""
        first = self._next
        observed = [self._observation, *(timestep.observation for _, timestep in steps)]
        block = _Block(
            first,
            self._leaves("observations", self._encoding.observation, observed),
            self._leaves("actions", self._encoding.action, [action for action, _ in steps]),
            np.stack([timestep.reward for _, timestep in steps]).astype(np.float32, copy=False),
        )
        self._blocks.append(block)
        self._next = block.end
        last = np.stack([self._last, *(timestep.last for _, timestep in steps)])
        ended = last[1:] | np.stack([timestep.first for _, timestep in steps])
        for row, env in np.argwhere(ended).tolist():
            timestep, end = steps[row][1], first + row + 1
            terminated = not timestep.discount[env]
            if last[row, env]:
                # The action was ignored: the next episode begins after it.
                self._begun[env] = end
            elif timestep.last[env]:
                yield from self._end(env, end, terminated)
                self._begun[env] = None
            else:
                # Its final observation is lost.  Nothing depends on it after a termination.
                yield from self._end(env, end if terminated else end - 1, terminated, is_lost=terminated)
                self._begun[env] = end
        self._observation, self._last = observed[-1], last[-1]
        self._trim()

    def _leaves(self, name: str, encoding: Nest, nests: Sequence[Nest]) -> list[Leaf]:
        """Returns nests `[B, ...]` of what agents see as the environment's own values `[T, B, ...]`."""
        envs = len(self._begun)

        def stack(*leaves: np.ndarray) -> np.ndarray:
            return np.concatenate(leaves)

        native = native_values(encoding, tree.map_structure(stack, *nests))
        space = self._spaces[0] if name == "observations" else self._spaces[1]
        return [
            leaf._replace(values=leaf.values.reshape(len(nests), envs, *leaf.values.shape[1:]))
            for leaf in leaves_of(space, native, name)
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

        def column(leaves: Sequence[Leaf], final: bool) -> Leaf:
            parts = [leaf.values[a:b, env] for leaf, (a, b) in zip(leaves, rows, strict=True)]
            if final:
                at = rows[-1][1] - is_lost
                parts.append(leaves[-1].values[at : at + 1, env])
            return leaves[0]._replace(values=np.concatenate(parts))

        columns = [
            *(column(leaves, True) for leaves in zip(*(block.observations for block in blocks), strict=True)),
            *(column(leaves, False) for leaves in zip(*(block.actions for block in blocks), strict=True)),
        ]
        ends = {name: np.zeros(end - begun, np.bool_) for name in ("terminations", "truncations")}
        ends["terminations" if terminated else "truncations"][-1] = True
        values = {
            **{leaf.path: leaf.column() for leaf in columns},
            "rewards": np.concatenate([block.rewards[a:b, env] for block, (a, b) in zip(blocks, rows, strict=True)]),
            **ends,
        }
        yield EpisodeColumns(values, end - begun, seed)

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
