"""Which hosts of a cluster file can reach each other, before a run is started.

Each host listens on one of its ports and connects to those of the others.  A host replies to a connection with its own
results, so that every host soon has the results of all.  Replies are JSON; nothing that is received is executed.
"""

import itertools
import json
import socket
import threading
import time
from collections.abc import Mapping

from ....errors import CallboardError
from ....runtime.deadlines import wait_until
from ...processes.ports import listen_on_all
from .cluster_file import Cluster

_DIAL_SECONDS = 2.0
_POLL_SECONDS = 0.5
_MAX_BYTES = 1_000_000
REACHED = "yes"
UNKNOWN = "?"


def check_reach(cluster: Cluster, host: str, seconds: float) -> dict[str, dict[str, str]]:
    """Returns the view of every host that replies: for every other host `yes`, or why it cannot be reached.

    Args:
      cluster: the hosts.
      host: the name of this host.
      seconds: maximum time to wait until all hosts reach each other.
    """
    view = {other: UNKNOWN for other in cluster.hosts if other != host}
    views = {host: view}
    with _Listener(cluster, host, view):
        wait_until(lambda: _dial_all(cluster, host, views), seconds, _POLL_SECONDS)
        # Keep listening, so that the other hosts can fetch the latest results.
        time.sleep(2 * _POLL_SECONDS)
        return views


def describe_problems(cluster: Cluster, host: str, views: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns one line for every host that is unreachable or has not reported; empty if all hosts reach each other."""
    problems = [
        f"{one} has not reported whether it reaches {other}"
        if found == UNKNOWN
        else f"{one} cannot reach {other} at {cluster.hosts[other]}:{_port(cluster, other)}: {found}"
        for one, other, found in _findings(cluster, views)
        # An unreachable host has reported nothing, and its unreachability is already listed.
        if found != REACHED and (one in views or views[host][one] == REACHED)
    ]
    if not cluster.is_here(host):
        problems.append(f"{cluster.hosts[host]} is not an address of this machine, which was started as {host}")
    return problems


class _Listener:
    """Replies to every connection with this host's view."""

    def __init__(self, cluster: Cluster, host: str, view: Mapping[str, str]):
        self._host = host
        self._view = view
        port = _port(cluster, host)
        try:
            self._socket = listen_on_all(port)
        except OSError as error:
            raise CallboardError(
                f"the port {port} of host {host} cannot be bound ({error.strerror}); end the run or the program that "
                "listens there, then check again"
            ) from error

    def __enter__(self) -> None:
        threading.Thread(target=self._serve, name="listener", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(_DIAL_SECONDS)
                try:
                    connection.sendall(json.dumps({"callboard": self._host, "reach": self._view}).encode())
                except OSError:
                    continue


def _dial_all(cluster: Cluster, host: str, views: dict[str, dict[str, str]]) -> bool:
    """Connects to all other hosts once, and returns whether every host reaches every other one."""
    dials = [threading.Thread(target=_dial, args=(cluster, host, other, views)) for other in views[host]]
    for dial in dials:
        dial.start()
    for dial in dials:
        dial.join()
    return all(found == REACHED for _, _, found in _findings(cluster, views))


def _dial(cluster: Cluster, host: str, other: str, views: dict[str, dict[str, str]]) -> None:
    """Connects to another host once and records the result."""
    try:
        address = (cluster.hosts[other], _port(cluster, other))
        with socket.create_connection(address, timeout=_DIAL_SECONDS) as connection:
            answer = json.loads(_read_all(connection))
        if answer["callboard"] != other:
            found = f"the host {answer['callboard']} answers there"
        else:
            found = REACHED
            views[other] = {str(name): str(value) for name, value in answer["reach"].items()}
    except ConnectionRefusedError:
        found = "the host is up, but the check does not run there"
    except TimeoutError:
        found = "no answer; is the host up, and the port open in its firewall?"
    except OSError as error:
        found = (error.strerror or str(error)).lower()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = "another program answers at that port"
    # A host that was reached once counts as reachable, even if its check has ended since.
    if views[host][other] != REACHED:
        views[host][other] = found


def _findings(cluster: Cluster, views: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Returns the result for every ordered pair of hosts; `?` if a host has not reported it."""
    pairs = itertools.permutations(cluster.hosts, 2)
    return [(one, other, views.get(one, {}).get(other, UNKNOWN)) for one, other in pairs]


def _read_all(connection: socket.socket) -> bytes:
    received = b""
    while len(received) < _MAX_BYTES:
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return received


def _port(cluster: Cluster, host: str) -> int:
    # A separate port for each host, since several names may refer to one machine.
    return cluster.ports[list(cluster.hosts).index(host) % len(cluster.ports)]
