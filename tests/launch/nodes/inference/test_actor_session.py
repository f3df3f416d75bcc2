"""A session records every timestep once, and gives it one action, however often an actor sends it."""

from concurrent.futures import Future

import numpy as np
import pytest

from callboard.agents.policies.batched_policy import InferenceResult
from callboard.data import Timestep, Version
from callboard.launch.nodes.inference.actor_session import ActorSession
from callboard.launch.nodes.inference.places import RecordedPlace

BATCH = 2
VERSION = Version(0, 3)


class Writer:
    """Keeps the records and states that it receives; sequences have three timesteps."""

    def __init__(self):
        self.written = []

    def append(self, record, state):
        self.written.append((record, state))

    def caught_up(self):
        return True

    def may_act(self, version):
        return version == VERSION

    def count_timestep(self):
        return len(self.written) % 4 == 3


class Policy:
    """The action is the number of earlier requests, the state the number of earlier timesteps."""

    def __init__(self, computes=True):
        self.requests = []
        self.results = []
        self._computes = computes

    def __call__(self, request):
        self.requests.append(request)
        self.results.append(Future())
        if self._computes:
            self.compute()
        return self.results[-1]

    def compute(self):
        number = len(self.requests) - 1
        action = np.full(BATCH, number)
        self.results[-1].set_result((InferenceResult(action, (), self.requests[-1].state + 1), VERSION))


@pytest.fixture
def session():
    return ActorSession("a", RecordedPlace(0, np.zeros(BATCH), 7, Writer(), BATCH))


def timestep(number):
    observation, flags = np.full((BATCH, 1), number), np.zeros(BATCH, bool)
    return Timestep(observation, np.full(BATCH, float(number)), np.ones(BATCH), flags, flags)


def act(session, number, policy):
    """Returns the first environment's action."""
    assert session.observe(number, timestep(number)) and session.may_act(VERSION)
    (action,) = session.act(policy, timeout=0.0)
    return action[0]


def test_a_record_holds_a_timestep_with_its_action_and_what_followed(session):
    policy = Policy()
    assert [act(session, number, policy) for number in range(3)] == [0, 1, 2]
    for number, (record, state) in enumerate(session.writer.written):
        assert record.observation[0, 0] == record.action[0] == state[0] == number
        assert record.reward[0] == number + 1 and record.version[0].tolist() == list(VERSION)
    assert [request.seed.tolist() for request in policy.requests] == [[7, 0], [7, 1], [7, 2]]


def test_a_complete_sequence_ends_with_the_newest_observation(session):
    policy = Policy()
    for number in range(4):
        act(session, number, policy)
    *_, (last, _), (end, state) = session.writer.written
    assert (last.observation[0, 0], end.observation[0, 0], state[0]) == (2, 3, 3)
    assert len(session.writer.written) == 4


def test_a_repeated_timestep_gets_the_same_action_and_one_record(session):
    policy = Policy()
    assert [act(session, number, policy) for number in (0, 0, 1, 1)] == [0, 0, 1, 1]
    assert len(session.writer.written) == 1


@pytest.mark.parametrize("number", [1, 3])
def test_only_the_newest_timestep_and_the_next_are_known(session, number):
    policy = Policy()
    if number == 3:
        act(session, 0, policy)
        act(session, 1, policy)
    assert not session.observe(number, timestep(number))


def test_a_timestep_without_an_action_has_no_next(session):
    assert session.observe(0, timestep(0))
    assert not session.observe(1, timestep(1))


def test_a_late_result_belongs_to_the_repeated_request(session):
    policy = Policy(computes=False)
    assert session.observe(0, timestep(0)) and session.act(policy, timeout=0.0) is None
    assert session.observe(0, timestep(0)) and session.act(policy, timeout=0.0) is None
    policy.compute()
    assert act(session, 0, policy) == 0 and len(policy.requests) == 1


def test_a_request_that_was_submitted_does_not_need_newer_weights(session):
    assert session.observe(0, timestep(0)) and not session.may_act(Version(0, 2))
    session.act(Policy(), timeout=0.0)
    assert session.may_act(Version(0, 2))
