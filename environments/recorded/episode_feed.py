"""Plays recorded episodes as if a batch of environments did, without end."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tree

from ...data import Nest, Timestep
from .recorded_data import READ_AT_ONCE, RecordedData, RecordedEpisode


class EpisodeFeed:
    """The timesteps and actions of recorded episodes, of as many at a time as a batch has environments.

    Every episode is played once before any is played again, in an order that depends on the seed.  An episode ends
    with its last observation, after which the action is ignored, as in a `BatchedEnvironment`.

    Args:
      data: data sets.
      shares: the share of steps from each of them.
      batch_size: number of episodes at a time.
      seed: seed of the order.
      part: which part of all episodes is played: those with numbers `part`, `part + parts`, ...
      parts: number of parts.
    """

    def __init__(
        self,
        data: Sequence[RecordedData],
        shares: Sequence[float],
        batch_size: int,
        seed: int,
        part: int = 0,
        parts: int = 1,
    ):
        self._shares = shares
        self._steps = [0.0] * len(data)
        generator = np.random.default_rng([seed, part])
        self._streams = [_stream(one, generator, part, parts) for one in data]
        self._episodes = [self._next_episode() for _ in range(batch_size)]
        self._positions = np.zeros(batch_size, np.int64)
        self._reward = np.zeros(batch_size, np.float32)
        self._discount = np.ones(batch_size, np.float32)
        self.timestep = self._make_timestep()
        """The newest timestep."""
        self.steps = 0
        """Number of actions so far that were not ignored."""

    def action(self) -> Nest:
        """Returns the recorded actions at the newest timestep `[B, ...]`; any action where that is `last`."""
        return _stacked(
            [
                (episode.action, min(position, episode.length - 1))
                for episode, position in zip(self._episodes, self._positions.tolist(), strict=True)
            ]
        )

    def advance(self) -> None:
        """Continues to the timestep that followed the actions."""
        for env, (episode, position) in enumerate(zip(self._episodes, self._positions.tolist(), strict=True)):
            if position == episode.length:
                self._episodes[env] = self._next_episode()
                self._positions[env] = 0
                self._reward[env], self._discount[env] = 0.0, 1.0
                continue
            self.steps += 1
            self._positions[env] = position + 1
            self._reward[env] = episode.reward[position]
            self._discount[env] = episode.discount[position]
        self.timestep = self._make_timestep()

    def _make_timestep(self) -> Timestep:
        positions = self._positions.tolist()
        rows = [(episode.observation, position) for episode, position in zip(self._episodes, positions, strict=True)]
        return Timestep(
            observation=_stacked(rows),
            reward=self._reward.copy(),
            discount=self._discount.copy(),
            first=self._positions == 0,
            last=np.array(
                [position == episode.length for episode, position in zip(self._episodes, positions, strict=True)]
            ),
        )

    def _next_episode(self) -> RecordedEpisode:
        """Returns an episode of the data set that is the furthest behind its share."""
        behind = [steps / share for steps, share in zip(self._steps, self._shares, strict=True)]
        index = int(np.argmin(behind))
        episode = next(self._streams[index])
        self._steps[index] += episode.length
        return episode


def _stacked(rows: Sequence[tuple[Nest, int]]) -> Nest:
    """Returns a nest of arrays `[B, ...]` from rows of nests of arrays `[T, ...]`, each by its index."""
    leaves = [tree.flatten(nest) for nest, _ in rows]
    columns = [
        np.stack([of_row[column][index] for of_row, (_, index) in zip(leaves, rows, strict=True)])
        for column in range(len(leaves[0]))
    ]
    return tree.unflatten_as(rows[0][0], columns)


def shares_of(data: Sequence[RecordedData], given: Sequence[float | None]) -> list[float]:
    """Returns the share of each data set; those without one divide what is left by their numbers of steps."""
    left = 1.0 - sum(share for share in given if share is not None)
    steps: Mapping[int, int] = {
        index: one.total_steps for index, (one, share) in enumerate(zip(data, given, strict=True)) if share is None
    }
    total = sum(steps.values())
    return [left * steps[index] / total if share is None else share for index, share in enumerate(given)]


def _stream(data: RecordedData, generator: np.random.Generator, part: int, parts: int) -> Iterator[RecordedEpisode]:
    """Yields the episodes of a part of a data set, again and again in another order."""
    # With fewer episodes than parts, each part has one.
    own = np.arange(part % data.total_episodes, data.total_episodes, parts)
    while True:
        order = generator.permutation(own).tolist()
        for begin in range(0, len(order), READ_AT_ONCE):
            yield from data.episodes(order[begin : begin + READ_AT_ONCE])
