"""Where the nodes of a run on Ray are: a book of addresses, of which each node gets what it needs."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle
from launchpad.address import AbstractAddressBuilder

from ....runtime.deadlines import Deadline

_ADDRESS_SECONDS = 300.0
_STOP_POLL_SECONDS = 0.2


class NodeStopped(Exception):
    """Raised if a node is stopped while it waits for an address."""


Entries = Mapping[str, tuple[int, Sequence[str]]]
"""The `host:port` of every address of a node, by the node's name, with a number that grows with each change."""


class AddressBook:
    """The addresses of nodes known to this process.

    The driver maintains the book of all nodes, and sends each node the entries of those that it calls or that call it:
    when it starts, and then each that changes.  A book that is pickled is that of the process at the other end.
    """

    def __init__(self) -> None:
        self.entries: dict[str, tuple[int, Sequence[str]]] = {}
        self.stop = threading.Event()
        self.pickled: set[str] = set()
        """Names of the nodes whose addresses have been pickled since this was emptied."""
        self._changed = threading.Condition()

    def enter(self, name: str, addresses: Sequence[str]) -> None:
        """Records the addresses of a node."""
        number, _ = self.entries.get(name, (0, ()))
        self.update({name: (number + 1, list(addresses))})

    def update(self, entries: Entries) -> None:
        """Adopts those of the entries that are newer."""
        with self._changed:
            for name, entry in entries.items():
                if entry[0] > self.entries.get(name, (0, ()))[0]:
                    self.entries[name] = entry
            self._changed.notify_all()

    def addresses(self, name: str) -> Sequence[str]:
        """Returns the addresses of a node; none if they are not known yet."""
        return self.entries.get(name, (0, ()))[1]

    def machines(self) -> list[str]:
        """Returns the machines of all addresses."""
        with self._changed:
            known = [address for _, addresses in self.entries.values() for address in addresses]
        return sorted({address.rpartition(":")[0] for address in known})

    def find(self, name: str, index: int) -> str:
        """Returns an address of a node; waits if it is not known yet.

        Raises:
          NodeStopped: `stop` was set in the meantime.
          TimeoutError: the node has not reported it within five minutes.
        """
        deadline = Deadline(_ADDRESS_SECONDS)
        with self._changed:
            while len(self.addresses(name)) <= index:
                if self.stop.is_set():
                    raise NodeStopped
                if deadline.has_passed:
                    raise TimeoutError(f"{name} has not reported its address within {_ADDRESS_SECONDS:.0f} s")
                self._changed.wait(_STOP_POLL_SECONDS)
            return self.addresses(name)[index]

    def __reduce__(self) -> Any:
        return own_book, ()


_own_book = AddressBook()


def own_book() -> AddressBook:
    """Returns the book of the node that runs in this process.

    Not a cached function: once Launchpad has launched a program in the driver, such a function is pickled by value with
    a class that is, and each copy would have a book of its own.
    """
    return _own_book


class BookedAddress(AbstractAddressBuilder):
    """A Launchpad address that is looked up each time it is resolved."""

    def __init__(self, book: AddressBook, name: str, index: int):
        self._book = book
        self._name = name
        self._index = index

    def build(self) -> str:
        return self._book.find(self._name, self._index)

    def __getstate__(self) -> dict[str, Any]:
        self._book.pickled.add(self._name)
        return self.__dict__


class AddressExchange:
    """The driver's book, which sends each address to the node's callers and callees.

    Every change is sent once to each of them: the number of messages grows with the number of edges of the graph.

    Args:
      send: sends entries to the process of a node, given by its name.
    """

    def __init__(self, send: Callable[[str, Entries], object]):
        self.book = AddressBook()
        self._send = send
        self._lock = threading.Lock()
        self._neighbors: dict[str, set[str]] = {}

    def pickled(self, name: str, arguments: Any) -> bytes:
        """Returns the pickled arguments of a node's next incarnation, and sends its process the addresses in them."""
        with self._lock:
            self.book.pickled.clear()
            pickled = cloudpickle.dumps(arguments)
            for called in self.book.pickled:
                self._neighbors.setdefault(called, set()).add(name)
                self._neighbors.setdefault(name, set()).add(called)
            self._send_known(name, self._neighbors.get(name, ()))
            return pickled

    def enter(self, name: str, addresses: Sequence[str]) -> None:
        """Records the addresses that a node has reported."""
        with self._lock:
            self.book.enter(name, addresses)
            for neighbor in self._neighbors.get(name, ()):
                self._send_known(neighbor, [name])

    def _send_known(self, to: str, names: Iterable[str]) -> None:
        entries = {name: self.book.entries[name] for name in names if name in self.book.entries}
        if entries:
            self._send(to, entries)
