"""The replay node: one shard of the Reverb server."""

from typing import Any

import reverb

from ..agents.acting import trace_layout
from ..replay import start_server
from .experiment import Run
from .link import LinkedRole, Report
from .role import NodeContext, RoleHandle


class ReplayRole(LinkedRole):
    """Serves the agent's tables."""

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        shard: int,
        coordinator: RoleHandle,
    ):
        super().__init__(context, coordinator)
        self._experiment = run.experiment
        self._layout = run.layout
        self._directory = run.directory.replay(shard)
        self._shard = shard
        self._server: reverb.Server | None = None

    def setup(self) -> None:
        agent = self._experiment.agent
        layout = trace_layout(agent, self._layout, agent.make_networks(self._layout))
        self._tables = agent.make_tables(layout)
        self._server = start_server(self._tables, self.context.port, self._directory)
        self.context.tell("port", self._server.port)
        self.begin_reports()

    def step(self) -> None:
        if not self.context.cooperative:
            self.context.stop.wait(0.5)

    def finish(self) -> None:
        self.link.close()
        self.stop_server()

    def stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()

    def table_info(self, name: str) -> Any:
        """Reverb's `TableInfo` of a table."""
        return next(table.info for table in self._tables if table.name == name)

    def collect(self) -> Report:
        infos = [table.info for table in self._tables]
        size, room = sum(info.current_size for info in infos), sum(info.max_size for info in infos)
        return Report(values={f"replay/fill_{self._shard}": size / room})
