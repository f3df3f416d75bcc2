"""The recorder node: writes the episodes that actors have played into the run's data set."""

import pickle
import threading
import time
from typing import ClassVar

from ....environments.recorded import EpisodeFiles
from ....environments.recorded.episode_columns import EpisodeColumns
from ...experiments.checked_run import Run
from ...experiments.recorded_metadata import recorded_metadata
from ...run_directory.file_errors import file_error
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.reporting import ReportingNode

_COLLECT_SECONDS = 0.5
"""Shortest time from a write to the next, in which the episodes of all actors are collected."""
_PAUSE_FACTOR = 4.0
_LONGEST_PAUSE = 10.0
_ANSWER_SECONDS = 30.0
_GIGABYTE = 10**9


class RecorderNode(ReportingNode):
    """Keeps the data set `episodes/recorded-v0` of a run, or of one of its policies.

    What actors send is written before they get an answer, and once, also if they send it again.  `prepare_recorder`
    opens the data set.
    """

    served: ClassVar[tuple[str, ...]] = ("record",)

    def __init__(self, context: NodeContext, run: Run, coordinator: NodeHandle):
        super().__init__(context, coordinator)
        self._run = run
        self._changed = threading.Condition()
        self._waiting: list[_Call] = []
        self._writing = threading.Lock()
        self._files: EpisodeFiles | None = None
        self._reported_limit = False
        self._reported_failure = False

    def record(self, source: str, number: int, pickled: bytes) -> bool | None:
        """Writes episodes.

        Args:
          source: id of the incarnation of the actor that has played them.
          number: number of the call, from 1 on for every source; a repeated call writes nothing.
          pickled: a list of `EpisodeColumns`.

        Returns:
          True if they are written, False if the data set has reached its limit, None if the call must be repeated.
        """
        call = _Call(source, number, pickle.loads(pickled))
        if self.context.cooperative:
            self._write([call])
            return call.answer
        with self._changed:
            self._waiting.append(call)
            self._changed.wait_for(lambda: call.done, _ANSWER_SECONDS)
            if not call.done and call in self._waiting:
                self._waiting.remove(call)
        return call.answer

    def setup(self) -> None:
        self.context.progress.works_slowly("opening the data set")
        self._files = prepare_recorder(self._run)
        self.begin_reports()

    def step(self) -> None:
        if self.context.cooperative:
            return
        self.context.progress.works("writing")
        begun = time.monotonic()
        self._write_waiting()
        self.context.stop.wait(self._pause(time.monotonic() - begun))

    def finish(self) -> None:
        # Actors, which have ended, have waited for their last answers.
        self._write_waiting()
        if self._files is not None:
            self._files.close()
        self.reporter.close()

    def collect(self) -> Report:
        if self._files is None:
            return Report()
        return Report(values={"recorder/episodes": float(self._files.total_episodes)})

    def _pause(self, seconds: float) -> float:
        """Returns the seconds until the next write: the longer, the longer it takes to copy the files.

        Args:
          seconds: how long the write took as a whole.
        """
        copying = 0.0 if self._files is None else self._files.copying_seconds
        return min(max(_COLLECT_SECONDS - seconds, _PAUSE_FACTOR * copying), _LONGEST_PAUSE)

    def _write_waiting(self) -> None:
        with self._changed:
            calls, self._waiting = self._waiting, []
        if calls:
            self._write(calls)
            with self._changed:
                for call in calls:
                    call.done = True
                self._changed.notify_all()

    def _write(self, calls: "list[_Call]") -> None:
        """Writes the episodes of calls together, but not those of repeated calls."""
        # In a single thread of nodes, each actor's recording thread comes here by itself.
        with self._writing:
            assert self._files is not None
            try:
                # A source waits for the answer to a call before it makes the next one.
                new = {call.source: call for call in calls if call.number > self._files.last_number(call.source)}
                taken = not new or self._files.append(
                    [episode for call in new.values() for episode in call.episodes],
                    {source: call.number for source, call in new.items()},
                )
            except OSError as error:
                if not self._reported_failure:
                    self._reported_failure = True
                    self.context.notify(f"episodes could not be written, retrying: {file_error(error)}")
                return
            self._reported_failure = False
            for call in calls:
                call.answer = taken or call.source not in new
            if not taken and not self._reported_limit:
                self._reported_limit = True
                self.context.notify(
                    f"the data set has reached its limit of {self._run.recording.record_limit:g} GB with "
                    f"{self._files.total_episodes:,} episodes; no more are recorded"
                )


def prepare_recorder(run: Run) -> EpisodeFiles:
    """Opens the data set of a run or of one of its policies, which has a size limit."""
    limit = run.recording.record_limit * _GIGABYTE
    metadata = recorded_metadata(run.agent, run.environment, run.placement.seed)
    return EpisodeFiles(run.directory.recorded, run.layout.spec, metadata, limit)


class _Call:
    """A call of `record`, and its answer."""

    def __init__(self, source: str, number: int, episodes: list[EpisodeColumns]):
        self.source = source
        self.number = number
        self.episodes = episodes
        self.done = False
        self.answer: bool | None = None
