"""Ports of this machine: reserved before a node starts until after it has died for the last time."""

import contextlib
import functools
import random
import socket
import struct

# Above those of Ray's workers (10002 to 19999), and below those that Linux gives to outgoing connections.
RAY_PORTS = range(20_000, 32_768)

_MOST_CONNECTIONS = 100
_DIAL_SECONDS = 5.0
_SHARING = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)


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


def check_connections(port: int, nodes: int) -> None:
    """Makes as many connections to a reserved port as nodes may make to one of them: each takes a port of its own.

    Raises:
      OSError: there are not so many.
    """
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(_bound_socket(port, *_SHARING))
        server.listen(_MOST_CONNECTIONS)
        for _ in range(min(nodes, _MOST_CONNECTIONS)):
            client = sockets.enter_context(socket.create_connection(("localhost", port), timeout=_DIAL_SECONDS))
            # The port is free again at once.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def listen_on_all(port: int) -> socket.socket:
    """A socket that listens on a port of all interfaces, by IPv6 and IPv4 where the machine has both.

    Raises:
      OSError: the port cannot be bound.
    """
    if has_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


@functools.cache
def has_ipv6() -> bool:
    """Whether this machine has IPv6; containers often do not, and servers there listen by IPv4 alone."""
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
