"""Ports of a process are closed to other machines: to network namespaces with addresses of their own."""

import socket
import subprocess
import sys
import threading

import pytest
from host_network import HostNetwork, why_not

from callboard.launch.processes import listen_filter
from callboard.launch.processes.listen_filter import PortGuard, filter_program, refusal, resolved

SERVER = """
import socket, sys, threading
from callboard.launch.processes.listen_filter import PortGuard
servers = []
for number in range(3):
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    servers.append(server)
closed, late, open_to_all = (server.getsockname()[1] for server in servers)
hosts = sys.argv[1:]
guard = PortGuard()
guard.close(closed)
guard.close_when_open([late], threading.Event())
guard.allow(hosts)
PortGuard(None).close(open_to_all)
while late not in guard._ports:
    pass
print(closed, late, open_to_all, flush=True)
sys.stdin.read()
"""
CLIENT = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=0.7).close()
        print("connected")
    except TimeoutError:
        print("no answer")
"""


@pytest.fixture(scope="module")
def network():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    network = HostNetwork(["a", "b", "c"])
    yield network
    network.close()


def answers(network, name, ports):
    command = [*network.inside(name), sys.executable, "-c", CLIENT, network.addresses["a"], *ports]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_only_this_machine_and_named_hosts_reach_a_closed_port(network):
    command = [*network.inside("a"), sys.executable, "-c", SERVER, network.addresses["b"], "192.0.2.7", "2001:db8::7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        ports = server.stdout.readline().split()
        assert answers(network, "a", ports) == ["connected"] * 3
        assert answers(network, "b", ports) == ["connected"] * 3
        assert answers(network, "c", ports) == ["no answer", "no answer", "connected"]
        server.stdin.close()


def test_the_kernel_accepts_filters_of_many_hosts():
    assert refusal() == ""
    hosts = [f"10.0.{number // 250}.{number % 250}" for number in range(200)]
    hosts += [f"2001:db8::{number:x}" for number in range(200)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen_filter._set_filter(server, filter_program(hosts))
        socket.create_connection(server.getsockname()).close()
    with pytest.raises(ValueError, match="at most 400 hosts, not 401"):
        filter_program([*hosts, "10.1.0.0"])


def test_names_are_looked_up_again(monkeypatch):
    monkeypatch.setattr(listen_filter, "_LOOK_UP_SECONDS", 0.01)
    known = []
    looked_up = threading.Event()

    def look_up(hosts):
        if known:
            looked_up.set()
        return list(known)

    monkeypatch.setattr(listen_filter, "resolved", look_up)
    guard = PortGuard(["starts-later.invalid"])
    assert guard._addresses == []
    known.append("192.0.2.1")
    looked_up.wait(10)
    while guard._addresses != ["192.0.2.1"]:
        pass


def test_a_name_that_cannot_be_looked_up_is_left_out():
    assert resolved(["192.0.2.1", "not-there.invalid"]) == ["192.0.2.1"]


def test_a_port_on_which_nothing_listens_is_no_error():
    PortGuard().close(1)
