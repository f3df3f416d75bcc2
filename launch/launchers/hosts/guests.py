"""Machines that are not in the cluster file, and join a run with its token.

Courier executes what it is sent, so a machine reaches the ports of a run only once it has shown the token at a door of
its own: a port on which the first host exchanges two lines of JSON with it.  Each side proves that it knows the token,
with a code over random numbers of both; the token itself is never sent.  The machine then gets some of the run's
actors, and the packet filters let its address in.
"""

import collections
import contextlib
import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ....errors import CallboardError
from ....runtime.deadlines import Clock, Deadline
from ...processes.ports import listen_on_all
from .cluster_file import Cluster

_LINE_BYTES = 16_384
_TALK_SECONDS = 5.0
_MOST_TALKS = 16
_REST_SECONDS = 0.1
_FIRST_HEARTBEAT_SECONDS = 60.0
"""Time in which a machine that was let in must send its first heartbeat, before its actors are given to others."""
_LONGEST_NAME = 200


class NotAdmitted(CallboardError):
    """The first host has refused a machine; the message says why."""


class GuestPlace(NamedTuple):
    """The place of a machine that joins."""

    address: str
    """Its address, as the first host sees it."""
    actors: Sequence[int]
    """Indices of its actors."""


class GuestList:
    """The machines that have joined, and the actors of each.  All methods may be called from any thread.

    Args:
      cluster: the cluster file.
      most: number of actors of the run; those that the file does not place are for guests.
      is_present: returns whether a host sends heartbeats.
      changed: called with the addresses of all guests when one has been added.
      allow_public: whether machines with public addresses may join.
      clock: the clock; another one in tests.
    """

    def __init__(
        self,
        cluster: Cluster,
        most: int,
        is_present: Callable[[str], bool],
        changed: Callable[[Collection[str]], None],
        allow_public: bool = False,
        clock: Clock = time.monotonic,
    ):
        self._cluster = cluster
        self._indices = range(len(cluster.placement["actor"]), most)
        self._is_present = is_present
        self._changed = changed
        self._allow_public = allow_public
        self._clock = clock
        self._lock = threading.RLock()
        self._places: dict[str, GuestPlace] = {}
        self._expected: dict[str, Deadline] = {}

    def address_of(self, name: str) -> str:
        """Returns the address of a guest; empty if there is no such guest."""
        # Without the lock: the table of hosts calls it under its own, which `is_present` takes.
        place = self._places.get(name)
        return place.address if place is not None else ""

    def admit(self, name: str, address: str, held: Sequence[int] = ()) -> GuestPlace:
        """Returns the place of a machine, which may have had one before.

        Args:
          name: the name that it has given itself.
          address: its address.
          held: indices of the actors that it runs, where the first host may have been restarted since.

        Raises:
          NotAdmitted: it gets none.
        """
        guests = self._cluster.guests
        if guests is None or not guests.contains(address):
            raise NotAdmitted(f"the cluster file of the first host lets no machine join from {address}")
        if ipaddress.ip_address(address).is_global and not self._allow_public:
            raise NotAdmitted(f"{address} is a public address, and the first host was not started with --allow-public")
        if name in self._cluster.hosts or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise NotAdmitted(f"{name[:_LONGEST_NAME]!r} is no name for a machine that joins: choose another one")
        with self._lock:
            known = self._places.get(name)
            if known is not None and known.address == address:
                self._expect(name)
                return known
            if known is not None and self._is_held(name):
                raise NotAdmitted(f"another machine has the name {name}")
            taken = {
                index
                for other, place in self._places.items()
                if other != name and self._is_held(other)
                for index in place.actors
            }
            free = [index for index in self._indices if index not in taken]
            actors = list(held) if held and set(held) <= set(free) else free[: guests.actors]
            if not actors:
                raise NotAdmitted(f"the run has all of its {self._indices.stop} actors: join later")
            # What was given to a machine that has gone is no longer its own.
            gone = [other for other, place in self._places.items() if not set(place.actors).isdisjoint(actors)]
            for other in gone:
                del self._places[other]
            place = self._places[name] = GuestPlace(address, actors)
            self._expect(name)
            self._changed({one.address for one in self._places.values()})
            return place

    def _expect(self, name: str) -> None:
        self._expected[name] = Deadline(_FIRST_HEARTBEAT_SECONDS, self._clock)

    def _is_held(self, name: str) -> bool:
        return self._is_present(name) or not self._expected[name].has_passed


class Door:
    """The port at which machines show the token.

    Args:
      port: the port.
      token: the token of the run.
      admit: see `GuestList.admit`.
    """

    def __init__(self, port: int, token: str, admit: Callable[[str, str, Sequence[int]], GuestPlace]):
        self._token = token
        self._admit = admit
        self._talks = threading.BoundedSemaphore(_MOST_TALKS)
        self._open: dict[socket.socket, str] = {}
        """Connections, the oldest first, and where they come from."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._listener = listen_on_all(port)
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(_REST_SECONDS)  # Such as too many open files, which does not last.
                continue
            address = _plain(peer[0])
            if not self._talks.acquire(blocking=False):
                self._make_room()
                if not self._talks.acquire(timeout=_TALK_SECONDS):
                    connection.close()
                    continue
            with self._lock:
                self._open[connection] = address
            threading.Thread(target=self._talk, args=(connection, address), name="at the door", daemon=True).start()

    def _make_room(self) -> None:
        """Ends the oldest connection of the address with most of them: who knows the token needs no time."""
        with self._lock:
            most = collections.Counter(self._open.values()).most_common(1)
            for connection, address in self._open.items():
                if address == most[0][0]:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                    return

    def _talk(self, connection: socket.socket, address: str) -> None:
        try:
            with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                line = _Line(connection)
                nonce = secrets.token_hex(16)
                line.send({"nonce": nonce})
                said = line.receive()
                name, theirs, held = str(said["host"]), str(said["nonce"]), [int(index) for index in said["held"]]
                # With the address: no machine in between can pass on the proof of another machine as its own.
                if not _is_code(said["code"], self._token, "guest", address, nonce, theirs, name, *map(str, held)):
                    line.send({"wrong": True})
                    return
                try:
                    place = self._admit(name, address, held)
                    answer = json.dumps([place.address, list(place.actors), ""])
                except NotAdmitted as error:
                    answer = json.dumps(["", [], str(error)])
                line.send({"answer": answer, "code": _code(self._token, "first", theirs, nonce, answer)})
        finally:
            with self._lock:
                del self._open[connection]
            self._talks.release()


def knock(address: tuple[str, int], token: str, name: str, held: Sequence[int] = ()) -> GuestPlace:
    """Shows the token at the door of the first host.

    Args:
      address: that of the door.
      token: the token of the run.
      name: the name of this machine.
      held: see `GuestList.admit`.

    Raises:
      NotAdmitted: the first host refuses this machine, or one of the two has another token.
      OSError: no host answers.
    """
    with socket.create_connection(address, timeout=_TALK_SECONDS) as connection:
        line = _Line(connection)
        try:
            theirs, nonce = str(line.receive()["nonce"]), secrets.token_hex(16)
            own = _plain(connection.getsockname()[0])
            code = _code(token, "guest", own, theirs, nonce, name, *map(str, held))
            line.send({"host": name, "nonce": nonce, "held": list(held), "code": code})
            said = line.receive()
            if said.get("wrong"):
                raise NotAdmitted("the first host has another token: copy that of its run directory")
            if not _is_code(said["code"], token, "first", nonce, theirs, str(said["answer"])):
                raise NotAdmitted(f"what listens at {address[0]}:{address[1]} does not know the token of the run")
            seen, actors, refusal = json.loads(said["answer"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OSError("another program answers") from error
    if refusal:
        raise NotAdmitted(str(refusal))
    return GuestPlace(str(seen), [int(index) for index in actors])


class _Line:
    """Lines of JSON through a connection, which must come in time."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._deadline = Deadline(_TALK_SECONDS)

    def send(self, content: Mapping[str, Any]) -> None:
        self._connection.settimeout(max(0.01, self._deadline.left))
        self._connection.sendall(json.dumps(content).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        text = b""
        while not text.endswith(b"\n"):
            self._connection.settimeout(max(0.01, self._deadline.left))
            more = self._connection.recv(_LINE_BYTES)
            text += more
            if not more or len(text) > _LINE_BYTES or self._deadline.has_passed:
                raise TimeoutError("no line")
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("no message")
        return content


def _plain(address: str) -> str:
    """Returns an address without its interface, as one of IPv4 if it stands for one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)


def _code(token: str, *parts: str) -> str:
    """Returns a code that only who knows the token can compute."""
    return hmac.new(token.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def _is_code(code: object, token: str, *parts: str) -> bool:
    return isinstance(code, str) and code.isascii() and hmac.compare_digest(code, _code(token, *parts))
