"""Ports that are ours from before a node starts until after it has died for the last time."""

import contextlib
import random
import socket
from collections.abc import Iterator, Mapping, Sequence

import launchpad as lp
from launchpad.address import AbstractAddressBuilder

from ..program import nodes_of
from ..role import RoleNode

# Above those of Ray's workers (10002 to 19999), and below those that Linux gives to outgoing connections.
RAY_PORTS = range(20_000, 32_768)

_SHARING = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)


class FixedAddress(AbstractAddressBuilder):
    """A Launchpad address that is known."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address


class ReservedPort:
    """A port, kept for a node and for those that take its place when it is restarted.

    This process holds a socket that is bound to the port but does not listen.  It shares the port as servers do, so one
    of them may bind it too and listen on it, while the kernel gives it to nobody who asks for any free one.

    Args:
      bound: the socket.
    """

    def __init__(self, bound: socket.socket):
        for option in _SHARING:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        self._socket = bound
        self.port: int = bound.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def reserve_any() -> ReservedPort:
    """A free port.

    Raises:
      OSError: there is none.
    """
    return ReservedPort(_bound_socket(0))


def reserve(port: int) -> ReservedPort:
    """This port, also where another process has reserved it.

    Raises:
      OSError: somebody listens on it.
    """
    # With all sharing allowed two servers could listen on it, each with half of the connections.
    _bound_socket(port, socket.SO_REUSEADDR).close()
    return ReservedPort(_bound_socket(port, *_SHARING))


def reserve_among(ports: range) -> ReservedPort:
    """One of some ports, which nobody else has reserved.

    Raises:
      OSError: all are taken.
    """
    # Not from the process's own generator: where that is seeded, all would try the same ports.
    for port in random.SystemRandom().sample(ports, len(ports)):
        try:
            # It is shared only once it is bound: where two had asked for that from the start, both would get it.
            return ReservedPort(_bound_socket(port))
        except OSError:
            continue
    raise OSError(f"all ports from {ports[0]} to {ports[-1]} of this machine are taken: end what listens there")


@contextlib.contextmanager
def reserved_ports(program: lp.Program) -> Iterator[dict[str, int]]:
    """Reserves a port for every address of a program, and binds the address to it; gives the nodes' ports by name."""
    reserved: list[ReservedPort] = []

    def local_address() -> str:
        reserved.append(reserve_any())
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


def _bound_socket(port: int, *options: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(("::", port))
    except OSError:
        bound.close()
        raise
    return bound
