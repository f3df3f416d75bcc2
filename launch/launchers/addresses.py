"""Ports that are ours from before a node starts until after it has died for the last time."""

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence

import launchpad as lp
from launchpad.address import AbstractAddressBuilder

from ..program import nodes_of
from ..role import RoleNode


class FixedAddress(AbstractAddressBuilder):
    """A Launchpad address that is known."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address


class ReservedPort:
    """A port, kept for a node and for those that take its place when it is restarted.

    The launcher holds a socket that is bound to the port but does not listen.  Both sides set SO_REUSEADDR, so a server
    may bind the same port and listen on it, while the kernel gives the port to nobody who asks for any free one.

    Args:
      port: which; 0 takes a free one.

    Raises:
      OSError: somebody listens on it.
    """

    def __init__(self, port: int = 0) -> None:
        if port:
            # The sharing that is allowed below would let two servers listen on it, each with half of the connections.
            _bound_socket(port, shared=False).close()
        self._socket = _bound_socket(port, shared=True)
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def reserved_ports(program: lp.Program) -> Iterator[dict[str, int]]:
    """Reserves a port for every address of a program, and binds the address to it; gives the nodes' ports by name."""
    reserved: list[ReservedPort] = []

    def local_address() -> str:
        reserved.append(ReservedPort())
        return f"localhost:{reserved[-1].port}"

    try:
        addresses = {node.name: [local_address() for _ in addresses_of(node)] for _, node in nodes_of(program)}
        bind_addresses(program, addresses)
        yield {name: port_of(own[0]) for name, own in addresses.items()}
    finally:
        for port in reserved:
            port.release()


def addresses_of(node: RoleNode) -> list[lp.Address]:
    """All addresses of a node; the first is that of its own port."""
    return [node.port_address, *node.further_addresses]


def bind_addresses(program: lp.Program, addresses: Mapping[str, Sequence[str]]) -> None:
    """Binds the addresses of every node to the `host:port` that stand under its name, in order."""
    for _, node in nodes_of(program):
        for address, known in zip(addresses_of(node), addresses[node.name], strict=True):
            address.bind(FixedAddress(known))


def port_of(address: str) -> int:
    """The port of a `host:port`."""
    return int(address.rpartition(":")[2])


def _bound_socket(port: int, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("::", port))
    except OSError:
        bound.close()
        raise
    return bound
