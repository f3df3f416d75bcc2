"""When a learner makes its last step, once its run ends."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from ....runtime.deadlines import Clock


class Patience(NamedTuple):
    """How long a learner continues after its run has begun to end.

    It ends once it has been short of data for more than `without_data` seconds, though not before `least` seconds of
    the ending have passed; and in any case after more than `most`.
    """

    without_data: float
    least: float
    most: float


LAST_DATA = Patience(without_data=0.5, least=0.0, most=2.0)
"""The learner may use the data that actors have sent."""
PROMISED_STEPS = Patience(without_data=1.5, least=1.5, most=math.inf)
"""The learner owes the steps that `samples_per_insert` promises for all environment steps of the run: samples follow
from what actors insert, and actors may still be sending it."""


class EndOfLearning:
    """Tells a learner when to end.  It knows neither replay nor the coordinator.

    Args:
      clock: the clock; another one in tests.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self.is_over = False
        """Whether the learner makes no other step; stays True."""
        self._clock = clock
        self._since = math.inf

    def begin(self) -> None:
        """Takes notice that the run ends; only the first call counts."""
        self._since = min(self._since, self._clock())

    def update(self, short_of_data: float, patience: Patience) -> None:
        """Ends learning if that is due.

        Args:
          short_of_data: seconds for which the learner has been waiting for a batch.
          patience: the rule, `LAST_DATA` or `PROMISED_STEPS`.
        """
        self.is_over |= self._ending > patience.most or self._has_run_out(short_of_data, patience)

    def give_up(self) -> None:
        """Ends learning: another learner takes no part in the step, which cannot be repeated."""
        self.is_over = True

    def leaves_step(self, short_of_data: float, peers: Sequence[float]) -> bool:
        """Returns whether the step of several learners is in vain: this one has its batch, and another gets none.

        Args:
          short_of_data: seconds for which this learner has been waiting for a batch.
          peers: the same of the others.
        """
        return not short_of_data and any(self._has_run_out(peer, PROMISED_STEPS) for peer in peers)

    @property
    def _ending(self) -> float:
        """Seconds since the run began to end; negative infinity before."""
        return self._clock() - self._since

    def _has_run_out(self, short_of_data: float, patience: Patience) -> bool:
        return short_of_data > patience.without_data and self._ending >= patience.least
