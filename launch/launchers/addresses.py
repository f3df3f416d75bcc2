"""The addresses of a program's nodes: reserving ports and binding the addresses to them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import launchpad as lp
from launchpad.address import AbstractAddressBuilder

from ..nodes.node import ProgramNode
from ..ports import ReservedPort, check_connections, reserve_any
from ..program import nodes_of


class FixedAddress(AbstractAddressBuilder):
    """A Launchpad address that is already known."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address


@contextlib.contextmanager
def reserved_ports(program: lp.Program) -> Iterator[dict[str, int]]:
    """Reserve a port for every address of a program and bind the address to it; yield the port of each node by name."""
    reserved: list[ReservedPort] = []

    def local_address() -> str:
        reserved.append(reserve_any())
        return f"localhost:{reserved[-1].port}"

    try:
        addresses = {node.name: [local_address() for _ in addresses_of(node)] for _, node in nodes_of(program)}
        bind_addresses(program, addresses)
        if reserved:
            check_connections(reserved[0].port, len(addresses))
        yield {name: port_of(own[0]) for name, own in addresses.items()}
    finally:
        for port in reserved:
            port.release()


def addresses_of(node: ProgramNode) -> list[lp.Address]:
    """Return all addresses of a node; the first is that of the node's own port."""
    return [node.port_address, *node.further_addresses]


def bind_addresses(program: lp.Program, addresses: Mapping[str, Sequence[str]]) -> None:
    """Bind the addresses of every node, in order, to the `host:port` strings listed under the node's name."""
    for _, node in nodes_of(program):
        for address, known in zip(addresses_of(node), addresses[node.name], strict=True):
            address.bind(FixedAddress(known))


def port_of(address: str) -> int:
    """Return the port of a `host:port` string."""
    return int(address.rpartition(":")[2])
