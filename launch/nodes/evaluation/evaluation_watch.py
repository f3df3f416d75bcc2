"""A time limit for evaluations, and a warning if episodes do not seem to end."""

import time
from collections.abc import Callable

from ....environments import unending_advice
from ....errors import counted
from ...experiments.parts.environment_part import EnvironmentPart

_WARN_SECONDS = 60.0
_LONG_EPISODE = 10_000
"""Steps without the end of an episode from which on it is likely that none will end."""


class EvaluationWatch:
    """Watches one evaluation; `stopped` and `episode_ended` are passed to `agents.acting.evaluate`.

    Args:
      episodes: number of episodes of the evaluation.
      timeout: seconds after which the evaluation is abandoned.
      stopped: whether it is to be abandoned for another reason.
      notify: receives a line for the user.
      environment: for advice on what limits its episodes.
      clock: returns seconds.
      show: receives how many episodes have ended, of how many.
    """

    def __init__(
        self,
        episodes: int,
        timeout: float,
        stopped: Callable[[], bool],
        notify: Callable[[str], None],
        environment: EnvironmentPart,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[int, int], None] = lambda ended, episodes: None,
    ):
        self._episodes = episodes
        self._timeout = timeout
        self._stopped = stopped
        self._notify = notify
        self._environment = environment
        self._clock = clock
        self._begun = clock()
        show(0, episodes)
        self._show = show
        self._steps = 0
        self._ended = 0
        self._warned = False
        self.timed_out = False
        """Whether the time ran out before the last episode ended."""

    def stopped(self) -> bool:
        """Returns whether to abandon the evaluation; called before every timestep."""
        seconds = self._clock() - self._begun
        if seconds > self._timeout:
            self.timed_out = True
        elif seconds > _WARN_SECONDS and not self._ended and not self._warned:
            self._warned = True
            self._notify(f"no episode of the evaluation has ended within {_WARN_SECONDS:.0f} s; {self._unending}")
        if self.timed_out or self._stopped():
            return True
        self._steps += 1
        return False

    def episode_ended(self) -> None:
        self._ended += 1
        self._show(self._ended, self._episodes)

    @property
    def problem(self) -> str:
        """Why the evaluation timed out, in one line."""
        advice = "raise evaluation_timeout, or evaluate fewer episodes"
        if not self._ended:
            advice = f"{self._unending}; {'if they are only slow, ' * (self._steps >= _LONG_EPISODE)}{advice}"
        return (
            f"the evaluation was given up: {self._ended} of its {counted(self._episodes, 'episode')} ended within "
            f"{self._timeout:g} s (evaluation_timeout); {advice}"
        )

    @property
    def _unending(self) -> str:
        made = f"each environment made {counted(self._steps, 'step')}"
        if self._steps < _LONG_EPISODE:
            return f"{made}, {self._steps / max(self._clock() - self._begun, 1.0):.1f} a second, so it may take long"
        advice = unending_advice(self._environment.env, self._environment.options_of_env, self._steps)
        return f"{made}; {advice}"
