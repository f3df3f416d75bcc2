"""Starts replay servers for tests."""

import pytest

from callboard.replay import ReplayHandle, start_server


@pytest.fixture
def serve(tmp_path):
    """Starts servers of the given lists of tables, one shard each; gives a handle to all of them."""
    servers: list = []

    def start(*shards):
        servers.extend(
            start_server(tables, None, tmp_path / str(len(servers) + number)) for number, tables in enumerate(shards)
        )
        ports = [server.port for server in servers[-len(shards) :]]
        return ReplayHandle(lambda: [f"localhost:{port}" for port in ports])

    yield start
    for server in servers:
        server.stop()
