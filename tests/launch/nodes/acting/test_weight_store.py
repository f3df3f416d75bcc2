"""The newest weights, for clients that wait for another version than their own."""

import threading

import numpy as np
import pytest

from callboard.data import Version
from callboard.launch.nodes.acting.weight_store import WeightStore


@pytest.fixture
def store():
    return WeightStore()


def packed(value):
    return np.full(3, value, np.uint8)


def test_an_empty_store_has_nothing_to_give(store):
    assert store.version() is None and store.get_variables(None, patience=0.0) is None


def test_a_client_gets_the_newest_weights_unless_it_has_them(store):
    store.put(Version(1, 5), packed(5))
    store.put(Version(1, 7), packed(7))
    assert store.version() == Version(1, 7)
    for have in (None, Version(1, 5), [0, 7]):
        version, weights = store.get_variables(have, patience=0.0)
        assert version == (1, 7) and weights.tolist() == [7, 7, 7]
    # Over gRPC a version arrives as a list.
    assert store.get_variables(Version(1, 7), patience=0.01) is store.get_variables([1, 7], patience=0.01) is None


def test_a_version_is_sent_as_plain_numbers(store):
    """Courier sends plain tuples."""
    store.put(Version(1, 5), packed(5))
    version, _ = store.get_variables(None, patience=0.0)
    assert type(version) is tuple


def test_a_learner_that_went_back_in_step_has_other_weights(store):
    store.put(Version(1, 9), packed(9))
    store.put(Version(2, 3), packed(3))
    assert store.get_variables(Version(1, 9), patience=0.0)[0] == (2, 3)


def test_all_clients_that_wait_are_answered_at_once(store):
    store.put(Version(0, 1), packed(1))
    answers = []
    begun = threading.Barrier(4)

    def wait():
        begun.wait(10.0)
        answers.append(store.get_variables(Version(0, 1), patience=60.0))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(10.0)
    store.put(Version(0, 2), packed(2))
    for thread in threads:
        thread.join(10.0)
    assert [answer[0] for answer in answers] == [(0, 2)] * 3
