"""When a node writes checkpoints, and what happens if one cannot be written."""

import math
import time
from collections.abc import Callable

from ....runtime.deadlines import Clock, Deadline
from ...run_directory.file_errors import file_error


class CheckpointSchedule:
    """Writes checkpoints at intervals.  One that cannot be written is reported once and retried; the run continues.

    Args:
      seconds: time between two checkpoints.
      retry_seconds: upper bound on the time after which a checkpoint that was not written is retried.
      notify: sends a line of text to the user.
      what: what is saved, for messages, such as `replay`; empty for the learner's state.
      every_steps: learner steps between two checkpoints, instead of `seconds`; None for seconds.
      clock: the clock; another one in tests.
    """

    def __init__(
        self,
        seconds: float,
        retry_seconds: float,
        notify: Callable[[str], None],
        what: str = "",
        every_steps: int | None = None,
        clock: Clock = time.monotonic,
    ):
        self._seconds = seconds if every_steps is None else math.inf
        self._retry_seconds = min(seconds, retry_seconds)
        self._notify = notify
        self._of = f" of {what}" if what else ""
        self._every_steps = every_steps
        self._next = Deadline(math.inf, clock)
        self._steps = 0
        self._failed = False

    def restart(self, steps: int = 0) -> None:
        """Counts the time, and the learner steps, from now on."""
        self._next.restart(self._seconds)
        self._steps = steps

    def stop(self) -> None:
        """Makes no other checkpoint due after some time."""
        self._next.restart(math.inf)

    def is_due(self, steps: int = 0) -> bool:
        """Returns whether a checkpoint should be written now, after so many learner steps."""
        every = self._every_steps
        return self._next.has_passed or (every is not None and steps // every > self._steps // every)

    def has_written(self, steps: int) -> bool:
        """Returns whether the state after so many learner steps needs no other checkpoint."""
        return not self._failed and self._steps == steps

    def write(self, write: Callable[[], object], error: type[Exception], steps: int = 0) -> None:
        """Calls `write`, which raises `error` if the checkpoint could not be written, and plans the next one."""
        self.restart(steps)
        try:
            write()
        except error as problem:
            self._next.restart(self._retry_seconds)
            if not self._failed:
                self._notify(
                    f"no checkpoint{self._of} could be written: {file_error(problem)}; the run continues, retrying "
                    f"every {self._retry_seconds:.0f} s"
                )
            self._failed = True
        else:
            if self._failed:
                self._notify(f"checkpoints{self._of} are written again")
            self._failed = False
