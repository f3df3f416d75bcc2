"""Steps per second of a run."""

import collections
from typing import NamedTuple

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
