"""Where a coordinator listens."""

import os
import socket

import psutil
import pytest

from callboard.launch.run_directory.coordinator_address import CoordinatorAddress, read_address, write_address


def test_an_address_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "coordinator.json"
    address = CoordinatorAddress.here(20000)
    write_address(path, address)
    assert read_address(path) == address
    assert address.is_here and address.process == os.getpid() and address.for_client() == "localhost:20000"
    socket.inet_aton(address.ip)


def test_other_machines_are_reached_by_their_address():
    address = CoordinatorAddress("another-machine.invalid", "10.0.0.7", 1, 20000)
    assert not address.is_here and address.for_client() == "10.0.0.7:20000"


@pytest.mark.parametrize(
    "content", [None, b"", b"{}", b"[1]", b"\xff", b'{"host": 1, "ip": 2, "process": "x", "port": 3}']
)
def test_a_file_that_is_missing_or_damaged_is_no_address(tmp_path, content):
    path = tmp_path / "coordinator.json"
    if content is not None:
        path.write_bytes(content)
    assert read_address(path) is None


def test_a_machine_without_a_route_to_all_others_has_the_address_in_its_own_network(monkeypatch):
    class Unroutable(socket.socket):
        def connect(self, address):
            raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "socket", Unroutable)
    found = CoordinatorAddress.here(20000).ip
    own = [one.address for all_of_one in psutil.net_if_addrs().values() for one in all_of_one]
    others = [address for address in own if "." in address and not address.startswith("127.")]
    assert found in (others or ["127.0.0.1"])
