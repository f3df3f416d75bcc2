"""The newest metrics of a run, from the reports of its nodes and the counters, and its rates of steps."""

import collections
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....environments import has_unseen_levels
from ....runtime.deadlines import Clock
from ...experiments.checked_run import Run
from ...node_names import metric_of
from ..episodes.joint_episodes import JointEpisodeMetrics
from ..episodes.metric_windows import WINDOW, EpisodeValues
from .counters import Counters

_LEARNER_STEPS = 4


class Elapsed(NamedTuple):
    """Steps made over a time."""

    seconds: float
    environment_steps: int
    learner_steps: int


class RateWindow:
    """The steps of the last seconds, or of the last four learner steps where those take longer.

    With a large batch, actors and the learner may work in turn for longer than the seconds: only whole turns give a
    rate then.

    Args:
      seconds: length of the window.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._points: collections.deque[Elapsed] = collections.deque()
        self._learned: collections.deque[Elapsed] = collections.deque(maxlen=_LEARNER_STEPS + 1)
        """The points at which learner steps were new."""

    def update(self, now: float, environment_steps: int, learner_steps: int) -> Elapsed:
        """Takes the steps of a run so far, and returns those of the window, which is empty at first.

        Args:
          now: seconds, by a monotonic clock.
          environment_steps: environment steps of the run.
          learner_steps: learner steps of the run.
        """
        points, new = self._points, Elapsed(now, environment_steps, learner_steps)
        if points and (environment_steps < points[-1].environment_steps or learner_steps < points[-1].learner_steps):
            points.clear()
            self._learned.clear()
        if points and learner_steps > points[-1].learner_steps:
            self._learned.append(new)
        points.append(new)
        while len(points) > 2 and now - points[1].seconds > self._seconds:
            points.popleft()
        first = min(points[0], self._learned[0]) if self._learned else points[0]
        steps = environment_steps - first.environment_steps, learner_steps - first.learner_steps
        return Elapsed(now - first.seconds, *steps)


class StepRates:
    """Steps per second, over about the last ten seconds, or over four learner steps where those take longer."""

    def __init__(self) -> None:
        self._window = RateWindow(10.0)

    def update(self, now: float, environment_steps: int, learner_steps: int) -> dict[str, float]:
        done = self._window.update(now, environment_steps, learner_steps)
        seconds = max(done.seconds, 1e-3)
        return {
            "actor/steps_per_second": done.environment_steps / seconds,
            "learner/steps_per_second": done.learner_steps / seconds,
        }


_COUNTS_OF_POLICIES = ("learner_steps", "agent_steps")


class RunMetrics:
    """Keeps what nodes have reported, for the rows of the metrics file.

    Args:
      run: the run.
      counters: its counters.
      clock: the clock; another one in tests.
    """

    def __init__(self, run: Run, counters: Counters, clock: Clock = time.monotonic):
        self._run = run
        self._named_policies = [policy for policy in run.policies if policy]
        self._counters = counters
        self._clock = clock
        self._begun = clock()
        self._rates = StepRates()
        self._episodes: collections.deque[tuple[float, int]] = collections.deque(maxlen=WINDOW)
        self._joint_episodes = JointEpisodeMetrics(run)
        self.values: dict[str, float] = {}
        """The newest values that nodes have reported, by name."""
        self.evaluation: dict[str, float] = {}
        """The metrics of the newest evaluation; empty before the first."""
        self.unreported = (0, 0)
        """Environment and learner steps made since the last reports, where these are rare."""

    def add(self, values: dict[str, float], episodes: Iterable[Sequence[float]]) -> None:
        """Takes values, and return and length of episodes, as those of a `reporting.Report`."""
        self.values.update(values)
        self._episodes.extend((float(value), int(length)) for value, length in episodes)

    def add_joint_episodes(self, episodes: Iterable[Sequence[Any]]) -> list[EpisodeValues]:
        """Takes episodes with several agents, the fields of `JointEpisode`; returns their metrics by task."""
        return self._joint_episodes.add(episodes)

    def add_evaluation(self, evaluation: dict[str, float]) -> None:
        """Takes an evaluation, to which it adds the generalization gap: see docs/metrics.md."""
        self.evaluation = dict(evaluation)
        # Training episodes must be played the same way, on other levels.
        alike, environment = self._run.evaluation.evaluation_mode == "sampled", self._run.environment
        if alike and self._episodes and has_unseen_levels(environment.env, environment.options_of_env):
            gap = statistics.fmean(value for value, _ in self._episodes) - evaluation["evaluator/return"]
            self.evaluation["evaluator/generalization_gap"] = gap

    def row(self) -> dict[str, Any]:
        """Returns the metrics at this time, without those of the evaluation."""
        environment_steps = self._counters.total("environment_steps") + self.unreported[0]
        learner_steps = self._counters.total("learner_steps") + self.unreported[1]
        now = self._clock()
        row: dict[str, Any] = {
            "time": time.time(),
            "elapsed_seconds": now - self._begun,
            "environment_steps": environment_steps,
            "learner_steps": learner_steps,
            "ignored_timesteps": self._counters.total("ignored_timesteps"),
            "episodes": self._counters.total("episodes"),
            "learner/duplicate_items": self._counters.total("duplicates"),
            **self._rates.update(now, environment_steps, learner_steps),
        }
        if recorded := self._counters.total("recorded_steps"):
            row["recorded_steps"] = recorded
        if self._episodes:
            row["actor/episode_return"] = statistics.fmean(value for value, _ in self._episodes)
            row["actor/episode_length"] = statistics.fmean(length for _, length in self._episodes)
        names = [metric_of(policy, count) for policy in self._named_policies for count in _COUNTS_OF_POLICIES]
        row.update({name: self._counters.total(name) for name in names})
        row.update(self._joint_episodes.row())
        row.update(sorted(self.values.items()))
        return row

    def save_ratings(self) -> None:
        """Writes the ratings of policies that play against each other, if there are any.

        Raises:
          OSError: the file could not be written.
        """
        self._joint_episodes.save()
