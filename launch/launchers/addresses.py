"""Ports that are ours from before a node starts until after it has died for the last time."""

import contextlib
import socket
from collections.abc import Iterator

import launchpad as lp
from launchpad.address import AbstractAddressBuilder

from ..program import nodes_of


class FixedAddress(AbstractAddressBuilder):
    """A Launchpad address that is known."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address


class ReservedPort:
    """A free port, kept for a node and for those that take its place when it is restarted.

    The launcher holds a socket that is bound to the port but does not listen.  Both sides set SO_REUSEADDR, so a server
    may bind the same port and listen on it, while the kernel gives the port to nobody who asks for any free one.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("::", 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def reserved_ports(program: lp.Program) -> Iterator[dict[str, int]]:
    """Reserves a port for every address of a program, and binds the address to it; gives the nodes' ports by name."""
    reserved: list[ReservedPort] = []

    def bind(address: lp.Address) -> int:
        reserved.append(ReservedPort())
        address.bind(FixedAddress(f"localhost:{reserved[-1].port}"))
        return reserved[-1].port

    try:
        ports = {}
        for _, node in nodes_of(program):
            ports[node.name] = bind(node.port_address)
            for address in node.further_addresses:
                bind(address)
        yield ports
    finally:
        for port in reserved:
            port.release()
