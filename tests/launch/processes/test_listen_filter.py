"""Ports of a process are closed to other machines: to network namespaces with addresses of their own."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

import pytest
from host_network import HostNetwork, why_not

from callboard.launch.processes import listen_filter
from callboard.launch.processes.listen_filter import PortGuard, TooManyHosts, filter_program, refusal, resolved
from callboard.runtime.deadlines import wait_until

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
EARLY_SERVER = """
import os, select, socket, sys, time
from callboard.launch.processes.listen_filter import PortGuard
server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
print(server.getsockname()[1], flush=True)
accepted = [server.accept()[0] for _ in range(2)]
sys.stdin.readline()
time.sleep(0.3)  # Two more wait to be accepted.
PortGuard().close(server.getsockname()[1])
accepted += [server.accept()[0] for _ in range(2)]
time.sleep(0.3)
for connection in accepted:
    connection.send(b"go")
received = []
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for connection in select.select(accepted, [], [], 0.1)[0]:
        received.append(connection.recv(1).decode())
print(*received, flush=True)
"""
EARLY_CLIENT = """
import socket, sys, time
address, own = (sys.argv[1], int(sys.argv[2])), sys.argv[3]
first = socket.create_connection(address)
print("connected", flush=True)
second = socket.create_connection(address)
time.sleep(1.2)
for connection in (first, second):
    connection.send(own.encode())
time.sleep(60)
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


@contextlib.contextmanager
def server_in(network, name, *hosts):
    """The ports of a process that accepts these hosts: two that it closes, and one that is open to all."""
    command = [*network.inside(name), sys.executable, "-c", SERVER, *hosts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().split()
        server.stdin.close()


def test_only_this_machine_and_named_hosts_reach_a_closed_port(network):
    with server_in(network, "a", network.addresses["b"], "192.0.2.7", "2001:db8::7") as ports:
        assert answers(network, "a", ports) == ["connected"] * 3
        assert answers(network, "b", ports) == ["connected"] * 3
        assert answers(network, "c", ports) == ["no answer", "no answer", "connected"]


def test_the_kernel_accepts_filters_of_many_hosts():
    assert refusal() == ""
    hosts = [f"10.0.{number // 250}.{number % 250}" for number in range(200)]
    hosts += [f"2001:db8::{number:x}" for number in range(200)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen_filter._set_filter(server, filter_program(hosts))
        socket.create_connection(server.getsockname()).close()
    with pytest.raises(TooManyHosts, match="no room for 2080 hosts"):
        filter_program([f"10.1.{number // 250}.{number % 250}" for number in range(2080)])


def test_with_too_many_hosts_a_port_stays_closed(network):
    hosts = [f"10.9.{number // 250}.{number % 250}" for number in range(2080)]
    with server_in(network, "a", *hosts, network.addresses["b"]) as ports:
        assert answers(network, "a", ports) == ["connected"] * 3
        assert answers(network, "b", ports) == ["no answer", "no answer", "connected"]


def test_connections_from_before_the_filter_get_it_too(network):
    """One that was accepted before, one that is accepted after, and one from this machine."""
    command = [*network.inside("a"), sys.executable, "-c", EARLY_SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().strip()
        clients = [
            subprocess.Popen(
                [*network.inside(name), sys.executable, "-c", EARLY_CLIENT, network.addresses["a"], port, name],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("b", "a")
        ]
        assert [client.stdout.readline() for client in clients] == ["connected\n"] * 2
        server.stdin.write("close\n")
        server.stdin.flush()
        assert sorted(server.stdout.readline().split()) == ["a", "a"]
        for client in clients:
            client.kill()
            client.wait()
            client.stdout.close()


def test_a_port_that_opens_late_is_closed(monkeypatch):
    monkeypatch.setattr(listen_filter, "_WATCH_SECONDS", 0.02)
    guard, stop = PortGuard(), threading.Event()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        guard.close_when_open([port], stop)
        time.sleep(0.1)
        server.listen()
        assert wait_until(lambda: port in guard._ports, 5)
    stop.set()


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
