"""Cuts blocks of timesteps of a batch of environments into episodes."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tree

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches.encoding import encoding_of
from .episode_columns import EpisodeColumns, columns_of
from .native_values import native_values, space_of

_OPEN_BYTES = 2**30
"""Memory that open episodes may take; longer ones are not recorded."""

Step = tuple[Nest, Timestep]
"""An action, and the timestep that followed."""


class _Block(NamedTuple):
    """What the batch did in some consecutive rows; a row is an action and the observation before it."""

    first: int
    """Number of its first row since the batch began."""
    observation: list[np.ndarray]
    """The leaves, `[rows, B, ...]`, before the actions."""
    action: list[np.ndarray]
    """The leaves, `[rows, B, ...]`."""
    reward: np.ndarray
    """`[rows, B]`."""


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
        self._spec = spec
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
        self._observation: list[np.ndarray] = []
        self._last = np.zeros(0, np.bool_)
        self._row_bytes = 1
        self._reported_length = False

    def begin(self, timestep: Timestep) -> None:
        """Takes the first timestep of all environments; open episodes are left out."""
        self._blocks, self._next = [], 0
        self._begun = [0] * len(timestep.first)
        self._observation = tree.flatten(timestep.observation)
        self._last = timestep.last
        self._row_bytes = 1 + sum(leaf.nbytes for leaf in self._observation)

    def cut(self, steps: Sequence[Step]) -> Iterator[EpisodeColumns]:
        """Takes what followed, and yields the episodes that have ended with it."""
        after = [tree.flatten(timestep.observation) for _, timestep in steps]
        actions = [tree.flatten(action) for action, _ in steps]
        before = [self._observation, *after[:-1]]
        first = self._next
        block = _Block(
            first,
            [np.stack(leaves) for leaves in zip(*before, strict=True)],
            [np.stack(leaves) for leaves in zip(*actions, strict=True)],
            np.stack([timestep.reward for _, timestep in steps]),
        )
        self._blocks.append(block)
        self._next += len(steps)
        last = np.stack([self._last, *(timestep.last for _, timestep in steps)])
        ended = last[1:] | np.stack([timestep.first for _, timestep in steps])
        for row, env in np.argwhere(ended).tolist():
            timestep = steps[row][1]
            if last[row, env]:
                # The action was ignored: the next episode begins after it.
                self._begun[env] = first + row + 1
            elif timestep.last[env]:
                yield from self._end(env, first + row, after[row], not timestep.discount[env])
                self._begun[env] = None
            else:
                # Its final observation is lost.  Nothing depends on it after a termination.
                terminated = not timestep.discount[env]
                yield from self._end(env, first + row if terminated else first + row - 1, before[row], terminated)
                self._begun[env] = first + row + 1
        self._observation, self._last = after[-1], last[-1]
        self._trim()

    def _end(self, env: int, row: int, final: list[np.ndarray], terminated: bool) -> Iterator[EpisodeColumns]:
        """Yields the episode of an environment whose last action is that of a row, if it is recorded."""
        begun, seed = self._begun[env], self._seeds[env]
        self._seeds[env] = None
        if begun is None or not self._left[env]:
            return
        self._left[env] -= 1
        if row >= begun:
            yield self._columns(env, begun, row + 1, final, terminated, seed)

    def _columns(
        self, env: int, begun: int, end: int, final: list[np.ndarray], terminated: bool, seed: int | None
    ) -> EpisodeColumns:
        """Returns the rows `begun` to `end - 1` of an environment as columns, with the observation after them."""
        parts = [
            (block, max(begun - block.first, 0), end - block.first)
            for block in self._blocks
            if block.first < end and block.first + len(block.reward) > begun
        ]
        observed = [
            np.concatenate([*(block.observation[index][a:b, env] for block, a, b in parts), leaf[env][np.newaxis]])
            for index, leaf in enumerate(final)
        ]
        acted = [
            np.concatenate([block.action[index][a:b, env] for block, a, b in parts])
            for index in range(len(parts[0][0].action))
        ]
        ends = np.zeros(end - begun, np.bool_)
        ends[-1] = True
        observation = native_values(self._encoding.observation, tree.unflatten_as(self._spec.observation, observed))
        action = native_values(self._encoding.action, tree.unflatten_as(self._spec.action, acted))
        values = {
            **dict(columns_of(self._spaces[0], observation, "observations")),
            **dict(columns_of(self._spaces[1], action, "actions")),
            "rewards": np.concatenate([block.reward[a:b, env] for block, a, b in parts]).astype(np.float32),
            "terminations": ends & terminated,
            "truncations": ends & (not terminated),
        }
        return EpisodeColumns(values, end - begun, seed)

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
        self._blocks = [block for block in self._blocks if block.first + len(block.reward) > first]
