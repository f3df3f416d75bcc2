"""Writes the checkpoints of a learner, with the counters and changes of the run that the coordinator knows."""

import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from ...experiments.parts.output_part import CheckpointsPart
from ...run_directory.checkpoints import Checkpoints, NotWritten
from ..node import NodeContext, NodeHandle, Unreachable
from ..reports.reporting import Reporter
from ..reports.written_bytes import marked_while_files_grow
from .checkpoint_schedule import CheckpointSchedule
from .prepared_learner import PreparedLearner

_RETRY_SECONDS = 10.0
"""Interval between attempts to write a checkpoint after a failure."""


class CheckpointWriter:
    """Writes checkpoints.

    Args:
      context: context of the learner.
      intervals: when checkpoints are written.
      checkpoints: checkpoints of the run.
      coordinator: handle of the coordinator.
      reporter: reports to it.
      checked: checks, in a `with` block at a learner step, that values are finite, see `Publishing.checked`.
    """

    def __init__(
        self,
        context: NodeContext,
        intervals: CheckpointsPart,
        checkpoints: Checkpoints,
        coordinator: NodeHandle,
        reporter: Reporter,
        checked: Callable[[int], AbstractContextManager[None]],
    ):
        self._context = context
        self._checkpoints = checkpoints
        self._coordinator = coordinator
        self._reporter = reporter
        self._checked = checked
        self._prepared: PreparedLearner | None = None
        self.schedule = CheckpointSchedule(
            intervals.checkpoint_every, _RETRY_SECONDS, context.notify, every_steps=intervals.checkpoint_every_steps
        )
        """When checkpoints are due."""

    def begin(self, prepared: PreparedLearner) -> None:
        """Takes what is saved, and counts the time until the first checkpoint from now on."""
        self._prepared = prepared
        self.schedule.restart(prepared.steps)

    def save(self, steps: int, keep: bool = False) -> pathlib.Path:
        """Writes a checkpoint of the current state, and returns its path.

        Args:
          steps: learner steps made.
          keep: whether later checkpoints leave it.

        Raises:
          NotWritten: with the reason.
          CallboardError: a value in it is not finite; earlier checkpoints are kept.
        """
        assert self._prepared is not None
        # Report first, so that the counters include the step of these weights.
        self._reporter.report()
        try:
            sources, control = self._coordinator.client(self._reporter.call_seconds).checkpoint_state()
        except Unreachable:
            self._context.notify("the coordinator does not answer: this checkpoint keeps the counters of the last")
            sources, control = self._checkpoints.counter_sources(), self._checkpoints.control()
        progress, directory = self._context.progress, self._checkpoints.directory
        with self._checked(steps), marked_while_files_grow(progress, directory, "writing its checkpoint"):
            return self._checkpoints.save(steps, self._prepared.modules, self._prepared.policy, sources, control, keep)

    def save_unless_saved(self, steps: int) -> None:
        """Writes a checkpoint unless that of this learner step is written."""
        if not self.schedule.has_written(steps):
            self.try_to_save(steps)

    def try_to_save(self, steps: int) -> None:
        """Writes a checkpoint; if that fails, training continues and the write is retried later."""
        self.schedule.write(lambda: self.save(steps), NotWritten, steps)
