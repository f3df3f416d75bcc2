"""Requests of simulators: repeated, out of order, silent and too many of them; and what is recorded of them."""

import numpy as np
import pytest

from callboard.agents.policies.batched_policy import InferenceResult
from callboard.data import Version
from callboard.launch.nodes.inference.episode_server import ANSWER_SECONDS, EpisodeServer, RefusedRequest, StepRequest
from callboard.launch.nodes.inference.places import Place, PlacePool, RecordedPlace


class Writer:
    """Keeps records."""

    def __init__(self):
        self.records, self.is_ready, self.rested = [], True, 0

    def append(self, record, state):
        self.records.append(record)

    def count_timestep(self):
        return False

    def caught_up(self, timeout):
        return self.is_ready

    def may_act(self, version):
        return True

    def rest(self):
        self.rested += 1

    def close(self):
        pass


class Served:
    """An episode server whose action is the observation, with a clock that stands still."""

    def __init__(self, places=2, rotates=False):
        self.now, self.writers, self.batches, self.may_step = 0.0, [], [], True
        self.server = EpisodeServer(
            PlacePool(self.place, places, rotates),
            self.infer,
            lambda: Version(0, 3),
            silence=5.0,
            clock=lambda: self.now,
            may_step=lambda: self.may_step,
        )

    def place(self, index):
        self.writers.append(Writer())
        return RecordedPlace(index, (), 7, self.writers[-1])

    def infer(self, requests):
        self.batches.append([int(request.slots[0]) for request in requests])
        return [InferenceResult(request.timestep.observation.astype(np.int32), (), ()) for request in requests]

    def send(self, episode, sequence, observation=0.0, **fields):
        observation = None if observation is None else np.array([observation], np.float32)
        future = self.server.submit(StepRequest(episode, sequence, observation, **fields))
        self.server.serve_once()
        return future

    def answer(self, *arguments, **fields):
        return self.send(*arguments, **fields).result(0)

    def refusal(self, *arguments, **fields):
        with pytest.raises(RefusedRequest) as caught:
            self.answer(*arguments, **fields)
        return caught.value.code

    def pass_seconds(self, seconds):
        self.now += seconds
        self.server.serve_once()


def rows(records):
    return [
        tuple(float(np.ravel(getattr(record, name))[0]) for name in ("observation", "action", "reward", "discount"))
        for record in records
    ]


def test_an_episode_is_recorded_as_of_an_environment_of_ours():
    served = Served()
    assert served.answer("a", 0, 1.0) == 1
    assert served.answer("a", 1, 2.0, reward=10.0) == 2
    assert served.answer("a", 2, 3.0, reward=20.0, terminated=True) is None
    served.answer("b", 0, 4.0, reward=99.0)
    (writer,) = served.writers
    assert rows(writer.records) == [(1, 1, 10, 1), (2, 2, 20, 0), (3, 3, 0, 1)]
    assert [bool(record.first[0]) for record in writer.records] == [True, False, False]
    assert [bool(record.last[0]) for record in writer.records] == [False, False, True]
    assert [tuple(episode) for episode in served.server.take_ended()] == [(0, 30.0, 2)]
    assert (served.server.environment_steps, served.server.episodes, served.server.cut_off) == (2, 1, 0)


def test_a_truncated_episode_does_not_terminate():
    served = Served()
    served.answer("a", 0)
    served.answer("a", 1, 1.0, truncated=True)
    served.answer("b", 0)
    assert [float(record.discount[0]) for record in served.writers[0].records] == [1, 1]
    assert bool(served.writers[0].records[1].last[0])


def test_a_repeated_request_is_recorded_once_and_answered_again():
    served = Served()
    for _ in range(3):
        assert served.answer("a", 0, 5.0) == 5
    for _ in range(2):
        assert served.answer("a", 1, 6.0, reward=1.0) == 6
    for _ in range(2):
        assert served.answer("a", 2, 7.0, terminated=True) is None
    assert len(served.writers[0].records) == 2
    assert served.server.environment_steps == 2


def test_a_request_that_is_repeated_before_its_answer_gets_the_same_answer():
    served = Served()
    served.answer("a", 0)
    served.writers[0].is_ready = False
    first, second = served.send("a", 1, 3.0), served.send("a", 1, 3.0)
    assert not first.done() and not second.done()
    assert served.refusal("a", 2, 4.0) == "wrong_sequence"
    served.writers[0].is_ready = True
    served.server.serve_once()
    assert first.result(0) == second.result(0) == 3
    assert len(served.writers[0].records) == 1


@pytest.mark.parametrize("sequence", [0, 1, 4])
def test_a_timestep_out_of_order_is_refused(sequence):
    served = Served()
    for number in range(3):
        served.answer("a", number)
    assert served.refusal("a", sequence) == "wrong_sequence"
    assert served.answer("a", 3, 8.0) == 8


def test_what_follows_the_end_of_an_episode_is_refused():
    served = Served()
    served.answer("a", 0)
    served.answer("a", 1, terminated=True)
    assert served.refusal("a", 2) == "ended"
    assert served.refusal("a", 0) == "ended"
    assert served.refusal("b", 3) == "unknown_episode"
    assert served.refusal("c", 0, terminated=True) == "bad_request"


def test_a_silent_episode_is_cut_off_and_not_terminated():
    served = Served(places=1)
    served.answer("a", 0, 1.0)
    served.answer("a", 1, 2.0, reward=1.0)
    assert served.refusal("b", 0) == "full"
    served.pass_seconds(4.9)
    assert served.server.open_episodes == 1
    served.pass_seconds(0.3)
    assert (served.server.open_episodes, served.server.cut_off, served.server.episodes) == (0, 1, 0)
    assert served.refusal("a", 2) == "ended"
    served.answer("b", 0, 3.0)
    # The transition to the next episode is not valid: `first` follows with a discount of 1.
    assert rows(served.writers[0].records) == [(1, 1, 1, 1), (2, 2, 0, 1)]


def test_a_silent_episode_that_waits_for_the_server_has_time_to_repeat_its_request():
    served = Served(places=1)
    served.answer("a", 0, 1.0)
    served.writers[0].is_ready = False
    waiting = served.send("a", 1, 2.0)
    served.pass_seconds(5.0 + ANSWER_SECONDS - 0.1)
    assert served.server.open_episodes == 1
    served.pass_seconds(0.3)
    assert served.server.open_episodes == 0
    assert isinstance(waiting.exception(0), RefusedRequest)
    # Its place is free once its newest timestep has been acted on.
    assert served.refusal("b", 0) == "full"
    served.writers[0].is_ready = True
    served.server.serve_once()
    assert served.answer("b", 0, 9.0) == 9
    assert rows(served.writers[0].records) == [(1, 1, 0, 1), (2, 2, 0, 1)]


def test_a_client_may_cut_its_episode_off():
    served = Served(places=1)
    served.answer("a", 0)
    assert served.answer("a", 1, None) is None
    assert served.answer("a", 1, None) is None
    assert served.server.cut_off == 1
    assert served.answer("b", 0, 4.0) == 4


def test_an_action_that_the_client_has_chosen_is_recorded_and_returned():
    served = Served()
    assert served.answer("a", 0, 1.0, action=np.array([40])) == 40
    served.answer("a", 1, 2.0)
    assert rows(served.writers[0].records) == [(1, 40, 0, 1)]


def test_requests_of_several_episodes_share_a_forward_pass():
    served = Served(places=3)
    futures = [
        served.server.submit(StepRequest(name, 0, np.array([number], np.float32))) for number, name in enumerate("abc")
    ]
    served.server.serve_once()
    assert [int(future.result(0)[0]) for future in futures] == [0, 1, 2]
    assert served.batches == [[0, 1, 2]]


def test_the_answers_of_a_batch_are_announced_together():
    served, announced = Served(places=3), []
    futures = []
    served.server.when_answered = lambda: announced.append([future.done() for future in futures])
    futures += [served.server.submit(StepRequest(name, 0, np.zeros(1, np.float32))) for name in "abc"]
    served.server.serve_once()
    assert announced[0] == [True] * 3
    futures += [served.server.submit(StepRequest("d", 4, np.zeros(1, np.float32)))]
    served.server.close()
    assert all(announced[-1])


def test_a_slow_episode_does_not_hold_up_others():
    served = Served()
    served.answer("slow", 0)
    for number in range(20):
        assert served.answer("fast", number, float(number)) == number


def test_no_action_is_given_beyond_the_limit_of_steps():
    served = Served()
    served.may_step = False
    future = served.send("a", 0)
    assert not future.done()
    served.may_step = True
    served.server.serve_once()
    assert future.done()


@pytest.mark.parametrize("rotates, expected", [(False, [0, 0, 0, 0]), (True, [0, 1, 2, 0])])
def test_which_place_an_episode_gets(rotates, expected):
    served = Served(places=3, rotates=rotates)
    for name in "abcd":
        served.answer(name, 0)
        served.answer(name, 1, terminated=True)
    begun = [slot for batch in served.batches for slot in batch][::2]
    assert begun == expected
    assert served.writers[0].rested


def test_a_closed_server_refuses_what_waits():
    served = Served()
    served.answer("a", 0)
    served.writers[0].is_ready = False
    waiting = served.send("a", 1)
    unseen = served.server.submit(StepRequest("b", 0, np.zeros(1, np.float32)))
    served.server.close()
    late = served.server.submit(StepRequest("c", 0, np.zeros(1, np.float32)))
    assert [future.exception(0).code for future in (waiting, unseen, late)] == ["closed"] * 3


def test_the_state_of_a_policy_with_memory_follows_the_timesteps():
    seen = []

    def infer(requests):
        seen.extend(float(request.state[0]) for request in requests)
        return [InferenceResult(request.slots, (), request.state + 1) for request in requests]

    places = PlacePool(lambda index: Place(index, np.zeros(1), 0), 1)
    server = EpisodeServer(places, infer, lambda: Version(0, 0), silence=5.0, clock=lambda: 0.0)
    for number in range(3):
        server.submit(StepRequest("a", number, np.zeros(1, np.float32)))
        server.serve_once()
    assert seen == [0, 1, 2]
