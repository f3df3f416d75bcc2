"""How an actor acts for one of several policies: here, or at an inference node that is scripted."""

import dataclasses
import threading

import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.agents.variables.weights import pack_weights
from callboard.data import Timestep
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.nodes.acting import policy_actors
from callboard.launch.nodes.acting.policy_actors import LocalPolicyActor, RemotePolicyActor
from callboard.launch.nodes.node import NodeContext, Unreachable
from callboard.launch.run_directory.layout import RunDirectory


class Inference:
    """A handle of an inference node, in this process, that answers as the test decides."""

    name = "inference/left/0"

    def __init__(self):
        self.answers, self.received, self.clients = [], [], 0

    def client(self, timeout):
        self.clients += 1
        return self

    def act(self, *timestep):
        self.received.append(timestep)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def inference():
    return Inference()


@pytest.fixture
def context():
    context = NodeContext("actor/1", "a", threading.Event(), lambda kind, content: None, None, cooperative=True)
    context.stop.set()  # Seats do not wait.
    return context


@pytest.fixture
def part(tmp_path):
    """The part of the run that trains `left`."""
    experiment = Experiment(Impala(), "echo_agents:Echo", policies={"left": {}, "right": {}}, envs_per_actor=2)
    return Run.of(experiment, check_experiment(experiment), RunDirectory(tmp_path)).of_policy("left")


@pytest.fixture
def actor(part, context, inference):
    context = dataclasses.replace(context, cooperative=False)
    found = RemotePolicyActor(part, 1, 0, context, inference)
    found.begin(timestep(0.0))
    return found


def timestep(value):
    flags = np.zeros(2, np.bool_)
    numbers = np.zeros(2, np.float32)
    return Timestep(np.full((2, 3), value, np.float32), numbers, numbers, flags, flags)


def ready(actor, answer):
    actor._inference.answers.append(answer)
    return actor.ready(timestep(0.0), lambda what: None)


ACTIONS = (True, [np.array([1, 2], np.int32)])


def test_an_action_is_requested_once(actor, inference):
    assert not ready(actor, (True, None)) and ready(actor, ACTIONS)
    assert actor.ready(timestep(0.0), lambda what: None), "it is kept until the others can act"
    assert actor.act(timestep(0.0)).tolist() == [1, 2] and len(inference.received) == 2
    actor.record(timestep(1.0))
    assert not ready(actor, (True, None))
    assert [number for _, _, _, number, _ in inference.received] == [0, 0, 1]
    assert inference.received[0][-1] != inference.received[-1][-1]


def test_a_node_that_does_not_answer_is_called_at_its_new_address(actor, inference):
    assert not ready(actor, Unreachable("it restarts")) and inference.clients == 2
    assert not actor.lost and ready(actor, ACTIONS)


def test_after_its_state_is_lost_it_begins_with_another_seed(actor, inference):
    assert not ready(actor, (False, None)) and actor.lost
    actor.begin(timestep(2.0))
    assert not actor.lost and ready(actor, ACTIONS)
    (index, before, seed, *_), (_, after, new_seed, number, _) = inference.received
    assert index == 1 and (before, after) == ("a.0", "a.1") and seed != new_seed and number == 0


class Writer:
    """Takes data as the test decides."""

    items_written, seconds_waited = 4, 1.5

    def __init__(self):
        self.has_room, self.oldest, self.waited_for_room = True, 0, False

    def caught_up(self):
        return self.has_room

    def take_waited_for_room(self):
        waited, self.waited_for_room = self.waited_for_room, False
        return waited

    def may_act(self, version):
        return version.step >= self.oldest


class Learner:
    """A handle of a learner, in this process, that serves the weights of one learner step, 3 at first."""

    name = "learner/left/0"

    def __init__(self):
        self.step, self.packed = 3, None

    def client(self, timeout):
        return self

    def get_variables(self, have, most):
        return None if have == (0, self.step) else ((0, self.step), self.packed)


@pytest.mark.slow("daily")
def test_a_seat_waits_for_weights_and_replay(part, context):
    learner = Learner()
    actor = LocalPolicyActor(part, 1, 0, context, learner, None, None)
    assert actor.weights_step is None and actor.items_written == 0 and not actor.wait_for_weights()
    learner.packed = pack_weights([variable.numpy() for variable in actor._policy.policy.variables])
    writer = actor._writer = Writer()
    waits = []
    assert actor.ready(None, waits.append) and waits == []
    writer.oldest = 4
    assert not actor.ready(None, waits.append)
    writer.has_room = False
    assert not actor.ready(None, waits.append)
    assert waits == ["newer weights", "replay to take data"]
    assert (actor.items_written, actor.seconds_waited, actor.weights_step) == (4, 1.5, 3)


def test_an_actor_that_waited_for_room_begins_with_weights_fetched_afterwards(part, context, monkeypatch):
    learner, waits = Learner(), []
    context = dataclasses.replace(context, cooperative=False)
    actor = LocalPolicyActor(part, 1, 0, context, learner, None, None)
    learner.packed = pack_weights([variable.numpy() for variable in actor._policy.policy.variables])
    writer = actor._writer = Writer()
    actor._weights.fetch()
    assert actor.ready(None, waits.append) and actor.weights_step == 3
    # The fetching thread, which this test has not, fetches once while the queue is full.
    learner.step = 4
    actor._weights.fetch()
    writer.waited_for_room = True
    assert not actor.ready(None, waits.append) and actor.weights_step == 3
    learner.step = 9
    actor._weights.fetch()
    assert actor.ready(None, waits.append) and actor.weights_step == 9
    assert actor.ready(None, waits.append), "the other timesteps of a sequence do not wait"
    # A learner that has stopped has no newer ones.
    monkeypatch.setattr(policy_actors, "_RENEWAL_SECONDS", 0.0)
    writer.waited_for_room = True
    assert actor.ready(None, waits.append) and waits == ["newer weights"]


@dataclasses.dataclass(frozen=True)
class WritingImpala(Impala):
    """An agent whose writers may use the networks."""

    def make_writer(self, replay, layout, actor, networks):
        raise NotImplementedError


@pytest.mark.slow("daily")
@pytest.mark.parametrize("agent, reads", [(Impala(), False), (WritingImpala(), True)])
def test_variables_are_assigned_where_something_reads_them(part, context, agent, reads):
    part = dataclasses.replace(part, experiment=dataclasses.replace(part.experiment, agent=agent))
    context = dataclasses.replace(context, cooperative=False)
    learner = Learner()
    actor = LocalPolicyActor(part, 1, 0, context, learner, None, None)
    actor._writer, variables = Writer(), actor._policy.policy.variables

    def take(step):
        values = [np.full(one.shape, step, one.dtype.as_numpy_dtype) for one in variables]
        learner.step, learner.packed = step, pack_weights(values)
        actor._weights.fetch()
        assert actor.ready(None, lambda what: None) and actor.weights_step == step

    def held():
        return int(variables[-1].numpy().max())

    take(3)
    assert held() == 3, "the first actions are compared with those of TensorFlow"
    actor._policy(timestep(0.0))
    take(4)
    assert actor._policy.computes_arrays and held() == (4 if reads else 3)
    assert actor.policy.variables[-1].numpy().max() == 4, "callers see the newest weights"
