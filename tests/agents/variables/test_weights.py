"""The client through which actors get their weights."""

import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.variables.weights import PackedVariables, Unpacking, WeightClient, pack_weights
from callboard.data import Version


class Source:
    """A learner, as far as those who act see it."""

    def __init__(self, version=(1, 0), scale=1.0):
        self.version = version
        self.scale = scale
        self.requested = []

    def get_variables(self, have, most):
        self.requested.append(have)
        if have == self.version:
            return None
        return self.version, pack_weights([np.full((2,), self.scale, np.float32), np.float32(2 * self.scale)])


@pytest.fixture
def variables():
    return [tf.Variable(tf.zeros((2,))), tf.Variable(0.0)]


def test_values_are_assigned_in_their_order_when_they_are_applied(variables):
    client = WeightClient(Source((1, 7), 3.0), variables)
    assert client.version is None and not client.apply()
    client.fetch()
    # The policy may be acting: nothing changes before `apply`.
    assert client.version is None and variables[1].numpy() == 0.0
    assert client.apply()
    assert client.version == Version(1, 7)
    np.testing.assert_array_equal(variables[0], [3.0, 3.0])
    assert variables[1].numpy() == 6.0


def test_what_is_at_hand_is_not_sent_again(variables):
    source = Source((1, 7))
    client = WeightClient(source, variables)
    client.fetch()
    # What was fetched is at hand before it is applied.
    client.fetch()
    assert client.apply() and not client.apply()
    client.fetch()
    assert not client.apply()
    assert source.requested == [None, (1, 7), (1, 7)]


def test_the_newest_of_what_was_fetched_is_applied(variables):
    source = Source((1, 7), 1.0)
    client = WeightClient(source, variables)
    client.fetch()
    source.version, source.scale = (1, 8), 5.0
    client.fetch()
    assert client.apply() and not client.apply()
    assert client.version == (1, 8) and variables[1].numpy() == 10.0


def test_a_learner_that_went_back_in_steps_is_followed(variables):
    client = WeightClient(Source((1, 900), 1.0), variables)
    client.fetch()
    client.apply()
    client.reconnect(Source((2, 400), 4.0))
    client.fetch()
    assert client.apply()
    assert client.version == Version(incarnation=2, step=400) and variables[1].numpy() == 8.0


def test_lists_in_place_of_tuples_are_fine(variables):
    """A link need not keep the difference."""
    source = Source([1, 7])
    client = WeightClient(source, variables)
    client.fetch()
    client.apply()
    assert client.version == Version(1, 7)


def test_weights_of_another_policy_are_refused(variables):
    client = WeightClient(Source(), variables[:1])
    client.fetch()
    with pytest.raises(ValueError):
        client.apply()
    assert variables[0].numpy().tolist() == [0, 0]


def test_values_of_all_kinds_travel_exactly_as_one_piece_of_bytes():
    rng = np.random.default_rng(0)
    # A single byte leaves those after it at odd addresses.
    values = [
        np.array(True),
        rng.normal(size=(3, 2)).astype(np.float32),
        np.array(2**40 + 1),
        rng.normal(size=(2,)),
        np.zeros((0, 4), np.float32),
    ]
    variables = [tf.Variable(np.zeros_like(value)) for value in values]
    packed = pack_weights(values)
    assert packed.dtype == np.uint8 and packed.shape == (1 + 24 + 8 + 16,)
    np.testing.assert_array_equal(PackedVariables([tf.Variable(value) for value in values])().numpy(), packed)
    for unpacked, value in zip(Unpacking(variables)(packed), values, strict=True):
        assert unpacked.dtype == value.dtype
        np.testing.assert_array_equal(unpacked, value)

    client = WeightClient(types.SimpleNamespace(get_variables=lambda have, most: ((1, 0), packed)), variables)
    client.fetch()
    assert client.apply()
    # What was sent may be used again.
    packed[:] = 0
    for variable, value in zip(variables, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def client_until_it_fails(stops_first):
    """Fetches in the background from a source that ends for good during a fetch, and returns the client."""
    stop, waits = threading.Event(), threading.Event()

    def fetch():
        waits.wait(10)
        raise ConnectionError("the source has ended")

    before = set(threading.enumerate())
    client = WeightClient(None, [])
    client.keep_fetching(fetch, lambda: 0.0, stop)
    (thread,) = set(threading.enumerate()) - before
    if stops_first:
        stop.set()
    waits.set()
    thread.join(10)
    return client


def test_a_source_that_ends_is_an_error_of_the_node_unless_it_stops():
    assert not client_until_it_fails(True).apply()
    client = client_until_it_fails(False)
    for takes in (client.apply, client.take):
        with pytest.raises(ConnectionError, match="the source has ended"):
            takes()


def test_a_node_that_needs_newer_weights_does_not_pause():
    stop, fetched = threading.Event(), threading.Semaphore(0)
    client = WeightClient(None, [])
    client.keep_fetching(fetched.release, lambda: 60.0, stop)
    assert not fetched.acquire(timeout=0.05)
    for _ in range(2):
        client.need_newer()
        assert fetched.acquire(timeout=10)
    stop.set()
    client.need_newer()
    assert not fetched.acquire(timeout=0.05)
