"""The replay node: one shard of replay, a Reverb server."""

import pathlib
from typing import Any

import numpy as np
import reverb

from ...agents.agent import Agent
from ...agents.policies.acting import trace_layout
from ...data import Layout
from ...errors import CallboardError
from ...replay import Replay, ReplayHandle, ReplayNotSaved, ShardSaver, WindowWeights, made_tables, start_server
from ...runtime.deadlines import retry
from ..experiments.checked_run import Run
from ..run_directory.file_errors import file_error
from .learning.checkpoint_schedule import CheckpointSchedule
from .node import NodeContext, NodeHandle
from .reports.messages import Report
from .reports.reporting import ReportingNode
from .reports.written_bytes import marked_while_files_grow

_INFO_SECONDS = 2
_SAVE_SECONDS = 300.0
"""Time without any progress after which a checkpoint is abandoned."""
_RETRY_SECONDS = 30.0
"""Interval between attempts to write a checkpoint after a failure."""
_START_SECONDS = 60.0


class ReplayNode(ReportingNode):
    """Serves the agent's tables, and saves them if the experiment is configured to.

    Where items hold whole batches of prioritized windows, it also serves the windows' weights.  `prepare_replay` builds
    the kind of replay, which defines the tables.
    """

    served = ("window_weights", "update_windows")
    has_server = True

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        shard: int,
        coordinator: NodeHandle,
    ):
        super().__init__(context, coordinator)
        self._agent = run.agent
        self._layout = run.layout
        self._run_directory = run.directory
        self._directory = run.directory.replay(shard)
        self._shard = shard
        # Data that must be learned from while it is fresh is of no use after a restart.
        self._keeps = run.checkpoints.checkpoint_replay and self._agent.make_replay(run.layout).pace is None
        self._server: reverb.Server | None = None
        self._windows: WindowWeights | None = None
        self.tables_at_start: dict[str, Any] = {}
        """The result of `tables` before any other node connected."""
        self._schedule = CheckpointSchedule(
            run.checkpoints.replay_checkpoint_every, _RETRY_SECONDS, context.notify, "replay"
        )

    def setup(self) -> None:
        replay = prepare_replay(self._agent, self._layout)
        windows = replay.window_weights(self._set_priorities)

        def restore(server: reverb.Server, checkpoint: pathlib.Path) -> None:
            self._client = server.localhost_client()
            if windows is not None:
                windows.restore(checkpoint)

        self._run_directory.make(self._directory)
        self._server = start_server(
            made_tables(replay), self.context.port, self._directory, self._keeps, self.context.notify, restore
        )
        port = self._server.port
        self.context.guard.close(port)
        self._saver = ShardSaver(
            ReplayHandle(lambda: [f"localhost:{port}"]), self._directory, save_further=windows.save if windows else None
        )
        self._client = self._server.localhost_client()
        self._windows = windows
        self.tables_at_start = self._first_tables()
        items = sum(info.current_size for info in self.tables_at_start.values())
        if items:
            self.context.notify(f"continues with {items:,} items")
        self._schedule.restart()
        self.context.send("port", self._server.port)
        self.begin_reports()
        self.context.progress.works("serving")

    def window_weights(self, keys: bytes, first: bytes) -> np.ndarray:
        """See `WindowWeights.window_weights`; other nodes call it, as the next method."""
        return self._weights_of_windows.window_weights(keys, first)

    def update_windows(self, keys: bytes, envs: bytes, priorities: bytes) -> None:
        """See `WindowWeights.update_windows`."""
        self._weights_of_windows.update_windows(keys, envs, priorities)

    @property
    def _weights_of_windows(self) -> WindowWeights:
        if self._windows is None:
            raise CallboardError(f"{self.context.name} has not started")
        return self._windows

    def _set_priorities(self, table: str, priorities: dict[int, float]) -> None:
        self._client.mutate_priorities(table, priorities)

    def step(self) -> None:
        if not self.context.cooperative:
            self.context.stop.wait(0.5)
            self._check_server()
        if self._keeps and self._schedule.is_due():
            self._schedule.write(self._save, ReplayNotSaved)

    def finish(self) -> None:
        self.reporter.close()
        try:
            if self._keeps:
                self._save()
        except ReplayNotSaved as error:
            raise CallboardError(f"the last checkpoint of replay could not be written: {file_error(error)}") from error
        finally:
            self.context.progress.works_slowly("ending")
            self.release()

    def release(self) -> None:
        # Its dozens of threads end with the object.
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _check_server(self) -> None:
        """Marks progress as long as the server answers."""
        try:
            self.tables()
        except Exception:  # As in `collect`.
            return
        self.context.progress.works("serving")

    def tables(self) -> dict[str, Any]:
        """Returns Reverb's `TableInfo` of every table, by name."""
        # Read from the server, because tables restored from a checkpoint are not the objects it was created with.
        return self._client.server_info(timeout=_INFO_SECONDS)

    def _first_tables(self) -> dict[str, Any]:
        # As in `collect`: on a busy machine the server may need a while to answer.
        return retry(self.tables, Exception, _START_SECONDS)

    def collect(self) -> Report:
        try:
            infos = list(self.tables().values())
        except Exception:  # Reverb raises its own errors and RuntimeError; each means that the server is too busy.
            return Report()
        items, room = sum(info.current_size for info in infos), sum(info.max_size for info in infos)
        limiters = [info.rate_limiter_info for info in infos]
        values = {
            "fill": items / room,
            "items": items,
            "inserted": sum(limiter.insert_stats.completed for limiter in limiters),
            "sampled": sum(limiter.sample_stats.completed for limiter in limiters),
        }
        return Report(values={f"replay/{name}_{self._shard}": value for name, value in values.items()})

    def _save(self) -> None:
        with marked_while_files_grow(self.context.progress, self._directory, "writing its checkpoint"):
            self._saver.save(_SAVE_SECONDS)


def prepare_replay(agent: Agent, layout: Layout) -> Replay:
    """Builds the agent's kind of replay, with the tables of a shard, for the records that its networks produce."""
    return agent.make_replay(trace_layout(agent, layout, agent.make_networks(layout)))
