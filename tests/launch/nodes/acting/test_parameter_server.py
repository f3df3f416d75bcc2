"""The parameter server: which weights it keeps, and which it serves."""

import numpy as np

from callboard.launch.nodes.acting.weight_store import ParameterServer


def test_serves_the_newest_weights_to_clients_that_have_others():
    server = ParameterServer()
    assert server.version() is None
    server.publish((1, 0), np.zeros(2))
    version, packed = server.get_variables(None)
    assert version == (1, 0) and packed.tolist() == [0, 0]
    # A version that was sent may arrive as a list.
    assert server.get_variables([1, 0]) is None
    server.publish((1, 7), np.ones(2))
    assert server.get_variables((1, 0))[0] == (1, 7) == server.version()


def test_keeps_the_weights_of_a_newer_learner():
    server = ParameterServer()
    server.publish((2, 0), np.ones(1))
    # A late call of the learner before.
    server.publish((1, 900), np.zeros(1))
    assert server.get_variables(None)[0] == (2, 0)


def test_begins_with_saved_weights_until_a_learner_publishes():
    server = ParameterServer(((0, 0), np.ones(1)))
    assert server.get_variables(None)[1].tolist() == [1]
    server.publish((1, 0), np.zeros(1))
    assert server.get_variables((0, 0))[0] == (1, 0)
