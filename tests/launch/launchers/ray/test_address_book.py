"""The address book of nodes on Ray; `test_launcher.py` runs the actors themselves."""

import copyreg
import functools
import pickle
import threading

import pytest
import ray
from launchpad.launch.serialization import enable_lru_cache_pickling_once

from callboard.launch.launchers.ray import address_book
from callboard.launch.launchers.ray.address_book import (
    AddressBook,
    AddressExchange,
    BookedAddress,
    NodeStopped,
    own_book,
)
from callboard.launch.launchers.ray.workers import RayNode


@pytest.fixture
def book():
    book = AddressBook()
    book.enter("learner/0", ["10.0.0.1:5", "10.0.0.1:6"])
    return book


def test_addresses_are_found_by_node_and_number(book):
    assert book.find("learner/0", 0) == "10.0.0.1:5"
    assert BookedAddress(book, "learner/0", 1).build() == "10.0.0.1:6"


def test_a_node_that_moves_is_found_at_its_new_address(book):
    address = BookedAddress(book, "learner/0", 0)
    book.enter("learner/0", ["10.0.0.2:7"])
    assert address.build() == "10.0.0.2:7"


def test_only_newer_entries_are_adopted(book):
    copy = AddressBook()
    old = dict(book.entries)
    book.enter("learner/0", ["10.0.0.2:7"])
    book.enter("actor/0", ["10.0.0.3:8"])
    for entries in (book.entries, old, {"learner/0": (1, ["10.0.0.9:9"])}, {}):
        copy.update(entries)
    assert copy.entries == book.entries
    assert copy.machines() == ["10.0.0.2", "10.0.0.3"] and copy.addresses("replay/0") == ()


def test_a_node_that_has_not_reported_is_waited_for(book):
    found = []
    thread = threading.Thread(target=lambda: found.append(book.find("replay/0", 0)))
    thread.start()
    book.update({"replay/0": (1, ["10.0.0.4:1"])})
    thread.join(10)
    assert found == ["10.0.0.4:1"]


def test_a_node_that_is_stopped_does_not_wait_for_an_address(book):
    book.stop.set()
    with pytest.raises(NodeStopped):
        book.find("replay/0", 0)
    with pytest.raises(NodeStopped):
        book.find("learner/0", 2)
    assert book.find("learner/0", 0) == "10.0.0.1:5"


def test_an_address_that_is_never_reported_is_an_error(book, monkeypatch):
    monkeypatch.setattr("callboard.launch.launchers.ray.address_book._ADDRESS_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="replay/0 has not reported its address"):
        book.find("replay/0", 0)


def begin_process():
    """Lets this process have a new book, as the process of another node does."""
    address_book._own_book = AddressBook()


@pytest.fixture(autouse=True)
def other_processes(monkeypatch):
    monkeypatch.setattr(address_book, "_own_book", AddressBook())


def test_a_pickled_book_is_that_of_the_process_at_the_other_end(book):
    own_book().enter("replay/0", ["10.0.0.4:1"])
    assert pickle.loads(pickle.dumps(book)) is own_book() is not book
    assert pickle.loads(pickle.dumps(BookedAddress(book, "replay/0", 0))).build() == "10.0.0.4:1"


def test_a_node_on_ray_has_the_book_of_its_process_also_after_launchpad_has_launched_another_program():
    # Its class is pickled by value, because its name is that of the actor class.
    method = RayNode.__ray_metadata__.modified_class.__base__.__init__
    enable_lru_cache_pickling_once.__wrapped__()
    try:
        pickled = ray.cloudpickle.dumps(method)
    finally:
        del copyreg.dispatch_table[type(functools.cache(lambda: None))]
        enable_lru_cache_pickling_once.cache_clear()
    unpickled = pickle.loads(pickled)
    assert unpickled is not method and unpickled.__globals__["own_book"]() is own_book()


class Cluster:
    """Processes of nodes, which get what the driver sends."""

    def __init__(self):
        self.messages, self.books = 0, {}
        self.exchange = AddressExchange(self.send)

    def send(self, to, entries):
        self.messages += 1
        self.books[to].update(pickle.loads(pickle.dumps(entries)))

    def start(self, name, *called):
        """Starts a process, which knows what it has been sent since."""
        begin_process()
        self.books[name] = own_book()
        addresses = [BookedAddress(self.exchange.book, other, 0) for other in (name, *called)]
        return pickle.loads(self.exchange.pickled(name, addresses))


def test_messages_grow_with_the_edges_of_the_graph():
    cluster, actors = Cluster(), [f"actor/{index}" for index in range(1000)]
    servers = ["coordinator/0", "replay/0", "learner/0"]
    for number, name in enumerate(servers):
        cluster.start(name, *servers[:number])
    for name in actors:
        cluster.start(name, *servers)
    for number, name in enumerate([*actors, *servers]):
        cluster.exchange.enter(name, [f"10.0.{number // 250}.1:{number}"])
    assert cluster.messages < 10 * len(actors)
    for name in actors:
        assert set(cluster.books[name].entries) == {name, *servers}
    # A server accepts packets from the machines of those that call it.
    assert set(cluster.books["learner/0"].entries) == {*actors, *servers}
    assert len(cluster.books["learner/0"].machines()) == 5


def test_nodes_that_start_or_move_late_are_found():
    cluster = Cluster()
    cluster.start("learner/0")
    cluster.exchange.enter("learner/0", ["10.0.0.1:1"])
    cluster.start("actor/0", "learner/0")
    assert cluster.books["actor/0"].find("learner/0", 0) == "10.0.0.1:1"
    cluster.exchange.enter("actor/0", ["10.0.0.2:2"])
    assert cluster.books["learner/0"].machines() == ["10.0.0.1", "10.0.0.2"]
    cluster.exchange.enter("learner/0", ["10.0.0.3:3"])
    assert cluster.books["actor/0"].find("learner/0", 0) == "10.0.0.3:3"
    # A process that starts again knows nothing of what was sent to the one before.
    cluster.start("learner/0")
    assert cluster.books["learner/0"].machines() == ["10.0.0.2", "10.0.0.3"]


def test_all_addresses_of_a_process_are_in_one_book():
    cluster = Cluster()
    _, learner = cluster.start("actor/0", "learner/0")
    cluster.books["actor/0"].enter("learner/0", ["10.0.0.1:1"])
    assert learner.build() == "10.0.0.1:1"
