"""Replay in a Ray actor: a Reverb server, to which writers send transitions in chunks."""

import pathlib
import tempfile
import uuid

from ....agents import Agent
from ....data import Layout
from ....replay import start_server
from ...ports import RAY_PORTS, reserve_among
from .part_clients import address_here

_INFO_SECONDS = 2


class ReplayServer:
    """A Reverb server with an agent's tables, at its Ray node's address.  Clients connect with `replay_handle`.

    After a restart by Ray, it is empty and at another address.

    Args:
      agent: the agent, which defines the tables.
      layout: the layout, traced as by `start_parts`.
    """

    def __init__(self, agent: Agent, layout: Layout):
        self._life = uuid.uuid4().hex
        self._port = reserve_among(RAY_PORTS)
        # Nothing is stored in the directory; it is only needed while the server starts.
        with tempfile.TemporaryDirectory() as directory:
            tables = agent.make_replay(layout).tables()
            self._server = start_server(tables, self._port.port, pathlib.Path(directory), restore=False)

    def where(self) -> tuple[str, str]:
        """Return the server's `host:port`, and the id of its incarnation."""
        return address_here(self._port.port), self._life

    def sizes(self) -> dict[str, int]:
        """Return the number of items in every table, by name."""
        tables = self._server.localhost_client().server_info(timeout=_INFO_SECONDS)
        return {name: info.current_size for name, info in tables.items()}
