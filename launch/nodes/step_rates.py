"""Steps per second of a run."""

import collections


class StepRates:
    """Steps per second, over about the last ten seconds."""

    def __init__(self) -> None:
        self._points: collections.deque[tuple[float, int, int]] = collections.deque()

    def update(self, now: float, environment_steps: int, learner_steps: int) -> dict[str, float]:
        points = self._points
        points.append((now, environment_steps, learner_steps))
        while len(points) > 2 and now - points[1][0] > 10.0:
            points.popleft()
        since, environment_before, learner_before = points[0]
        seconds = max(now - since, 1e-3)
        return {
            "actor/steps_per_second": (environment_steps - environment_before) / seconds,
            "learner/steps_per_second": (learner_steps - learner_before) / seconds,
        }
