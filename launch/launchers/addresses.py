"""The addresses of a program's nodes: reserving ports and binding the addresses to them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import launchpad as lp

from ..nodes.node import FixedAddress
from ..processes.ports import ReservedPort, check_connections, reserve_any
from ..program_nodes import nodes_of


@contextlib.contextmanager
def reserved_ports(program: lp.Program) -> Iterator[dict[str, int | None]]:
    """Reserves a port for every address of a program and binds the address to it.

    Yields the port of each node's first address by the node's name; None for a node without addresses.
    """
    reserved: list[ReservedPort] = []

    def local_address() -> str:
        reserved.append(reserve_any())
        return f"localhost:{reserved[-1].port}"

    try:
        addresses = {node.name: [local_address() for _ in node.addresses] for _, node in nodes_of(program)}
        bind_addresses(program, addresses)
        if reserved:
            check_connections(reserved[0].port, len(addresses))
        yield {name: first_port(own) for name, own in addresses.items()}
    finally:
        for port in reserved:
            port.release()


def bind_addresses(program: lp.Program, addresses: Mapping[str, Sequence[str]]) -> None:
    """Binds the addresses of every node, in order, to the `host:port` strings listed under the node's name."""
    for _, node in nodes_of(program):
        for address, known in zip(node.addresses, addresses[node.name], strict=True):
            address.bind(FixedAddress(known))


def first_port(addresses: Sequence[str]) -> int | None:
    """Returns the port of the first `host:port` string; None if there is none."""
    return port_of(addresses[0]) if addresses else None


def port_of(address: str) -> int:
    """Returns the port of a `host:port` string."""
    return int(address.rpartition(":")[2])
