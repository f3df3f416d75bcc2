"""The address book of nodes on Ray; `test_launcher.py` runs the actors themselves."""

import pickle
import threading

import pytest

from callboard.launch.launchers.ray.workers import AddressBook, BookedAddress, NodeStopped


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


def test_only_a_newer_version_is_adopted(book):
    copy = AddressBook()
    copy.update(book.version, book.known)
    book.enter("actor/0", ["10.0.0.3:8"])
    newest, newest_known = book.version, book.known
    copy.update(newest, newest_known)
    copy.update(newest - 1, {"learner/0": ["10.0.0.9:9"]})
    copy.update(newest, {})
    assert (copy.version, copy.known) == (newest, newest_known)


def test_a_node_that_has_not_reported_is_waited_for(book):
    found = []
    thread = threading.Thread(target=lambda: found.append(book.find("replay/0", 0)))
    thread.start()
    book.update(book.version + 1, {"replay/0": ["10.0.0.4:1"]})
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
    monkeypatch.setattr("callboard.launch.launchers.ray.workers._ADDRESS_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="replay/0 has not reported its address"):
        book.find("replay/0", 0)


def test_a_book_is_sent_with_its_addresses_and_without_its_stop(book):
    book.stop.set()
    copy = pickle.loads(pickle.dumps(book))
    assert (copy.version, copy.known) == (book.version, book.known)
    assert not copy.stop.is_set()
