"""The addresses of a program's nodes."""

import socket

import launchpad as lp
import pytest

from callboard.launch.launchers.addresses import (
    bind_addresses,
    first_port,
    port_of,
    reserved_ports,
)
from callboard.launch.nodes.node import FixedAddress, fixed_address


class Own:
    pass


@pytest.fixture
def program():
    """Two nodes with an address each, and one without."""
    program = lp.Program("own")
    for label in ("first", "second"):
        program.add_node(lp.CourierNode(Own), label)
    program.add_node(lp.PyNode(print), "printer")
    return program


def bind(port):
    """Binds the port, as a program that needs just this one."""
    with socket.socket() as other:
        other.bind(("", port))


def resolved(program):
    return {
        label: [address.resolve() for node in nodes for address in node.addresses]
        for label, nodes in program.groups.items()
    }


def test_every_address_gets_a_port_of_its_own_and_a_node_without_addresses_none(program):
    with reserved_ports(program) as ports:
        assert ports["printer/0"] is None
        assert resolved(program) == {
            "first": [f"localhost:{ports['first/0']}"],
            "second": [f"localhost:{ports['second/0']}"],
            "printer": [],
        }
        assert ports["first/0"] != ports["second/0"]
        with pytest.raises(OSError):
            bind(ports["first/0"])
    bind(ports["first/0"])


def test_ports_are_released_when_the_run_fails(program):
    with pytest.raises(RuntimeError), reserved_ports(program) as ports:
        raise RuntimeError
    bind(ports["second/0"])


def test_addresses_are_bound_as_they_are_listed(program):
    listed = {"first/0": ["10.0.0.1:20000"], "second/0": ["10.0.0.2:20001"], "printer/0": []}
    bind_addresses(program, listed)
    assert resolved(program) == {label.partition("/")[0]: addresses for label, addresses in listed.items()}
    with pytest.raises(ValueError):
        bind_addresses(program, {**listed, "first/0": []})


def test_an_address_that_is_known_and_its_port():
    assert FixedAddress("host:5").build() == fixed_address("host:5").resolve() == "host:5"
    assert port_of("[fd00::5]:20000") == 20000
    assert first_port(["a:1", "a:2"]) == 1 and first_port([]) is None
