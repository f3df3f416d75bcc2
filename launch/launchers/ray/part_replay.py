"""Replay in a Ray actor: a real Reverb server, to which transitions come in chunks."""

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
    """A Reverb server with an agent's tables, on its Ray node's address.  Others reach it by `replay_handle`.

    Where Ray starts it again, it is empty, and somewhere else.

    Args:
      agent: the recipe that makes the tables.
      layout: traced, as `start_parts` does it.
    """

    def __init__(self, agent: Agent, layout: Layout):
        self._life = uuid.uuid4().hex
        self._port = reserve_among(RAY_PORTS)
        # Nothing is kept in the directory: it need not be there any longer than the server takes to start.
        with tempfile.TemporaryDirectory() as directory:
            tables = agent.make_replay(layout).tables()
            self._server = start_server(tables, self._port.port, pathlib.Path(directory), restore=False)

    def where(self) -> tuple[str, str]:
        """The server's `host:port`, and what tells it from the one that was there before."""
        return address_here(self._port.port), self._life

    def sizes(self) -> dict[str, int]:
        """The number of items in every table, by name."""
        tables = self._server.localhost_client().server_info(timeout=_INFO_SECONDS)
        return {name: info.current_size for name, info in tables.items()}
