"""A learner's connection to replay: batches come from it, and priorities go back."""

from collections.abc import Callable, Sequence
from typing import Any

from ....data import Priorities
from ....replay import BatchReader, Heartbeat, PriorityUpdater, ReplayDataset, rebuilt_if_changed
from ....runtime.tracing_lock import TRACING
from ...experiments.checked_run import Run
from ..node import NodeContext, NodeHandle
from ..reports.reporting import Reporter
from .prepared_learner import PreparedLearner, distributed_batches, iterators

_PRIORITIES_SECONDS = 5.0
_INLINE_PATIENCE_SECONDS = 10.0


class ReplayConnection:
    """Reads the batches of a learner, and sends the priorities that it computes.

    Args:
      context: context of the learner.
      run: the run of its policy.
      shards: handles of the replay shards.
      reporter: knows the incarnations of the shards.
    """

    def __init__(self, context: NodeContext, run: Run, shards: Sequence[NodeHandle], reporter: Reporter):
        self._context = context
        self._run = run
        self.shards = [handle.name for handle in shards]
        """Names of the shards."""
        self._handle = reporter.replay_handle(shards)
        self.reader: BatchReader | None = None
        """The batches, from `open` on."""
        self._priorities: PriorityUpdater | None = None
        self._dataset: ReplayDataset | None = None

    def open(self, prepared: PreparedLearner, stopped: Callable[[], bool], while_waiting: Callable[[], object]) -> None:
        """Begins to read batches; the shards must have started.

        Args:
          prepared: what the learner trains.
          stopped: returns whether waiting for a batch is to end.
          while_waiting: called several times a second while there is no batch, unless nodes take turns.
        """

        def make_batches() -> Any:
            return distributed_batches(
                self._run.agent, self._handle, prepared.layout, prepared.strategy, self._take_dataset
            )

        stop = self._context.stop
        if self._context.cooperative:
            # The launcher calls for a batch only when replay can supply one; a missing batch would block all nodes.
            with TRACING:
                batches = make_batches()
            self.reader = BatchReader(iterators(lambda: batches), stop.is_set, patience=_INLINE_PATIENCE_SECONDS)
        else:
            Heartbeat(self._handle, stop)
            batches_of = rebuilt_if_changed(make_batches, key=lambda: tuple(self._handle.addresses()))
            self.reader = BatchReader(iterators(batches_of), stopped, self._incarnation, while_waiting=while_waiting)

    @property
    def dataset(self) -> ReplayDataset:
        """The newest dataset that batches come from; there is one from `open` on."""
        assert self._dataset is not None
        return self._dataset

    @property
    def short_of_data(self) -> float:
        """Seconds for which the learner has been waiting for a batch; 0 while it learns."""
        return 0.0 if self.reader is None else self.reader.seconds_waited

    @property
    def seconds_waited(self) -> float | None:
        """Seconds for which the learner has waited for batches so far; None before `open`."""
        return None if self.reader is None else self.reader.total_seconds_waited

    @property
    def duplicates(self) -> int:
        """Number of items that have arrived twice, and were dropped."""
        return self._handle.received.dropped()

    @property
    def dropped_priorities(self) -> int | None:
        """Number of priorities that were not sent, because others were waiting; None if none were ever sent."""
        return None if self._priorities is None else self._priorities.counts().dropped

    def send(self, priorities: Priorities) -> None:
        """Sends priorities to the tables of the dataset, in the background unless nodes take turns.

        Raises:
          CallboardError: these priorities, or earlier ones, are not `[B]`, or not finite and at least 0.
        """
        if self._priorities is None:
            self._priorities = PriorityUpdater(self._handle, self.dataset.table, *self.dataset.further)
        self._priorities.submit(priorities)
        if self._context.cooperative:
            self._priorities.wait(_PRIORITIES_SECONDS)

    def raise_failure(self) -> None:
        """Raises the `CallboardError` that the next `send` would raise."""
        if self._priorities is not None:
            self._priorities.raise_failure()

    def release(self) -> None:
        """Ends reading; may be called twice."""
        if self.reader is not None:
            self._handle.ended.set()
            self.reader.close()

    def close(self) -> None:
        """Ends reading and sending."""
        self.release()
        if self._priorities is not None:
            self._priorities.close()

    def _take_dataset(self, dataset: ReplayDataset) -> None:
        self._dataset = dataset

    def _incarnation(self) -> object:
        # A dataset over several shards reconnects to each of them by itself, and continues with the others meanwhile.
        return self._handle.incarnation(0) if self._run.layout.shards == 1 else None
