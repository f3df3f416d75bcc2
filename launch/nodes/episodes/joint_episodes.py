"""Metrics of episodes with several agents: returns by policy and by agent, and ratings of opponents."""

import collections
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....agents.agent import Agent
from ....environments.batches.tasks import Task
from ....environments.multi_agent.policy_slots import MultiAgentEpisode
from ....files.atomic_files import write_file
from ....files.guarded_files import read_json
from ...experiments.checked_run import Run
from ...experiments.policy_settings import Snapshots
from .metric_windows import WINDOW, EpisodeValues, first_episodes

FIRST_RATING = 1000.0
_RATING_STEP = 16.0
"""The most that one game changes a rating (K in Elo's formula)."""
_RATING_SCALE = 400.0


class JointEpisode(NamedTuple):
    """An episode with several agents that has ended; plain Python values only."""

    length: int
    """Environment steps."""
    returns: dict[str, float]
    """By agent, of those that took part."""
    players: dict[str, str]
    """Who chose each agent's actions: a policy, or a snapshot such as `past@3`."""
    task: Task = None
    """The task that had last been set when the episode began."""


def joint_evaluation_metrics(episodes: Sequence[MultiAgentEpisode], quota: int) -> dict[str, float]:
    """Returns the metrics of an evaluation's episodes by policy and by agent, as `evaluator/...`.

    Args:
      episodes: all episodes that ended since the reset, in order.
      quota: the number of episodes of each environment, the first ones, that belong to the evaluation.
    """
    returns: dict[str, list[float]] = {}
    scores: dict[str, list[float]] = {}
    for episode in first_episodes(episodes, quota):
        of_policy = {agent: policy.partition("/")[0] for agent, policy in episode.policies.items()}
        for agent, value in episode.returns.items():
            for name in (of_policy[agent], f"agent/{agent}"):
                returns.setdefault(name, []).append(value)
        if len(episode.returns) == 2:
            (one, other), (mine, theirs) = of_policy.values(), episode.returns.values()
            if one != other:
                score = _score(mine, theirs)
                scores.setdefault(one, []).append(score)
                scores.setdefault(other, []).append(1.0 - score)
    metrics = {f"evaluator/{name}/return": statistics.fmean(values) for name, values in sorted(returns.items())}
    metrics |= {f"evaluator/{name}/score": statistics.fmean(values) for name, values in sorted(scores.items())}
    return metrics


class Ratings:
    """Elo ratings of policies that play against each other in games of two agents (Elo 1978).

    The agent with the higher return wins.  A snapshot begins with the rating of its policy at that time.

    Args:
      origins: policy that each policy of snapshots is of.
    """

    def __init__(self, origins: dict[str, str]):
        self._origins = origins
        self.of: dict[str, float] = {}
        """Ratings by player."""

    def add(self, first: str, second: str, score: float) -> None:
        """Takes a game; `score` is 1 if the first player won, 0 if the second did, and 0.5 for a tie."""
        if first == second:
            return
        ratings = [self._rating(player) for player in (first, second)]
        expected = 1.0 / (1.0 + 10.0 ** ((ratings[1] - ratings[0]) / _RATING_SCALE))
        change = _RATING_STEP * (score - expected)
        self.of[first], self.of[second] = ratings[0] + change, ratings[1] - change

    def _rating(self, player: str) -> float:
        if player not in self.of:
            policy = player.partition("@")[0]
            self.of[player] = self.of.get(self._origins.get(policy, ""), FIRST_RATING)
        return self.of[player]


class JointEpisodeMetrics:
    """The metrics of the newest episodes of a run whose environment has several agents.

    Policies are rated if some of them do not learn, as in self-play.

    Args:
      run: the run.
    """

    def __init__(self, run: Run):
        policies = run.environment.policies
        self._has_opponents = not all(isinstance(policy, Agent) for policy in policies.values())
        self._path = run.directory.ratings
        self._keep = {name: one.keep for name, one in policies.items() if isinstance(one, Snapshots)}
        origins = {name: one.snapshots_of for name, one in policies.items() if isinstance(one, Snapshots)}
        self._ratings = Ratings(origins)
        self._saved: dict[str, float] = {}
        self._newest: dict[str, collections.deque[float]] = {}
        try:
            saved = read_json(self._path)
            ratings = {str(player): float(rating) for player, rating in saved.items()}
            if all(_snapshot_number(player) is not None for player in ratings if "@" in player):
                self._ratings.of = ratings
        except (OSError, ValueError, AttributeError, TypeError):
            pass

    def add(self, episodes: Iterable[Sequence[Any]]) -> list[EpisodeValues]:
        """Takes the episodes of a report, the fields of `JointEpisode`; returns their metrics by task."""
        values = []
        for episode in (JointEpisode(*fields) for fields in episodes):
            of_episode: dict[str, list[float]] = {}
            for agent, value in episode.returns.items():
                policy = episode.players[agent].partition("@")[0]
                for name in (f"{policy}/episode_return", f"agent/{agent}/episode_return"):
                    of_episode.setdefault(name, []).append(value)
            if self._has_opponents and len(episode.returns) == 2:
                of_episode |= self._add_game(episode)
            for name, numbers in of_episode.items():
                self._newest.setdefault(name, collections.deque(maxlen=WINDOW)).extend(numbers)
            values.append(EpisodeValues(episode.task, of_episode))
        return values

    def row(self) -> dict[str, float]:
        """Returns the metrics for a row."""
        row = {name: statistics.fmean(values) for name, values in sorted(self._newest.items())}
        snapshots: dict[str, list[int]] = {}
        for player, rating in self._ratings.of.items():
            number = _snapshot_number(player)
            if number is None:
                row[f"{player}/rating"] = rating
            else:
                snapshots.setdefault(player.partition("@")[0], []).append(number)
        for policy, numbers in snapshots.items():
            for newest in sorted(numbers)[-self._keep.get(policy, 1) :]:
                row[f"{policy}/rating_{newest}"] = self._ratings.of[f"{policy}@{newest}"]
        return row

    def save(self) -> None:
        """Writes the ratings if they have changed.

        Raises:
          OSError: the file could not be written; its old content is kept.
        """
        self._forget_old()
        if self._ratings.of != self._saved:
            write_file(self._path, json.dumps(self._ratings.of))
            self._saved = dict(self._ratings.of)

    def _forget_old(self) -> None:
        """Removes the ratings of snapshots that have not been played with for long."""
        newest: dict[str, int] = {}
        for player in self._ratings.of:
            policy, number = player.partition("@")[0], _snapshot_number(player)
            if number is not None:
                newest[policy] = max(number, newest.get(policy, 0))
        for player in list(self._ratings.of):
            policy, number = player.partition("@")[0], _snapshot_number(player)
            # Some episodes with older ones than the newest may still be under way.
            if number is not None and number <= newest[policy] - 2 * self._keep.get(policy, 1):
                del self._ratings.of[player]

    def _add_game(self, episode: JointEpisode) -> dict[str, list[float]]:
        """Rates the players of a game, and returns the scores of their policies."""
        (one, other), (mine, theirs) = episode.players.values(), episode.returns.values()
        score = _score(mine, theirs)
        self._ratings.add(one, other, score)
        scores: dict[str, list[float]] = {}
        if one != other:
            for player, points in ((one, score), (other, 1.0 - score)):
                scores.setdefault(f"{player.partition('@')[0]}/score", []).append(points)
        return scores


def _score(mine: float, theirs: float) -> float:
    """Returns the score of a game by its returns: 1 for a win, 0.5 for a tie and 0 for a loss."""
    return 0.5 if mine == theirs else float(mine > theirs)


def _snapshot_number(player: str) -> int | None:
    """Returns the number of a snapshot such as `past@3`; None for other players."""
    number = player.partition("@")[2]
    return int(number) if number.isdecimal() else None
