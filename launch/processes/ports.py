"""Reserves ports of this machine for nodes, from before their first start until after their last end."""

import contextlib
import functools
import random
import socket
import struct

# Above the ports of Ray's workers (10002 to 19999), and below Linux's range for outgoing connections.
RAY_PORTS = range(20_000, 32_768)

_MOST_CONNECTIONS = 100
_DIAL_SECONDS = 5.0
_SHARING = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)


class ReservedPort:
    """A port reserved for a node and its later incarnations.

    This process holds a socket that is bound to the port but does not listen.  The socket shares the port as servers
    do: a server may bind the port too and listen on it, but the kernel never assigns it to a process that requests any
    free port.

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
    """Reserves any free port.

    Raises:
      OSError: there is none.
    """
    return ReservedPort(_bound_socket(0))


def reserve(port: int) -> ReservedPort:
    """Reserves the given port, even if another process has reserved it.

    Raises:
      OSError: a process listens on it.
    """
    # With both sharing options, two servers could listen on the port, and each would get half of the connections.
    _bound_socket(port, socket.SO_REUSEADDR).close()
    return ReservedPort(_bound_socket(port, *_SHARING))


def reserve_among(ports: range) -> ReservedPort:
    """Reserves one of the given ports that no other process has reserved.

    Raises:
      OSError: all are taken.
    """
    # Not the process's global generator: if that is seeded, all processes would try the same ports.
    for port in random.SystemRandom().sample(ports, len(ports)):
        try:
            # Shared only after binding: two processes that bind with sharing from the start would both get the port.
            return ReservedPort(_bound_socket(port))
        except OSError:
            continue
    raise OSError(f"all ports from {ports[0]} to {ports[-1]} of this machine are taken: end what listens there")


def check_connections(port: int, nodes: int) -> None:
    """Opens as many connections to a reserved port as nodes may open to one node; each uses a local port.

    Raises:
      OSError: so many connections cannot be opened.
    """
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(_bound_socket(port, *_SHARING))
        server.listen(_MOST_CONNECTIONS)
        for _ in range(min(nodes, _MOST_CONNECTIONS)):
            client = sockets.enter_context(socket.create_connection(("localhost", port), timeout=_DIAL_SECONDS))
            # Frees the local port immediately on close.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def listen_on_all(port: int) -> socket.socket:
    """Returns a socket that listens on a port of all interfaces, on IPv6 and IPv4 if the machine has both.

    Raises:
      OSError: the port cannot be bound.
    """
    if has_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


@functools.cache
def has_ipv6() -> bool:
    """Returns whether this machine has IPv6; containers often have none, and servers there listen on IPv4 alone."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def _bound_socket(port: int, *options: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if has_ipv6() else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if has_ipv6():
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound
