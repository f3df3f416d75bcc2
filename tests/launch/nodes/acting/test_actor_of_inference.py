"""An actor for which an inference node acts, which is scripted, with a real coordinator and environments."""

import threading

import numpy as np
import pytest
from courier.python.client import StatusNotOk

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting.actor import ActorNode
from callboard.launch.nodes.acting.timestep_codec import TimestepCodec
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.layout import RunDirectory

ENVIRONMENTS = 3
INDEX = 1


class Handle:
    """Reaches an object in this process."""

    def __init__(self, name, node):
        self.name, self.node, self.clients = name, node, 0

    def client(self, timeout):
        self.clients += 1
        return self.node


class Inference:
    """Answers as the test decides, and notes what it receives."""

    def __init__(self):
        self.answers, self.received, self.observed = [], [], []

    def act(self, *timestep):
        self.received.append(timestep)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def observe(self, *timestep):
        self.observed.append(timestep)

    def items_written(self, index):
        return 10 * index


def make_context(name, incarnation, **settings):
    return NodeContext(name, incarnation, threading.Event(), lambda kind, content: None, None, **settings)


@pytest.fixture
def actor(tmp_path):
    """An actor that was set up, with its inference node as `actor.inference`."""
    experiment = Experiment(Impala(), "CartPole-v1", envs_per_actor=ENVIRONMENTS, inference="central")
    run = Run(experiment, experiment.layout(), RunDirectory(tmp_path))
    run.directory.create()
    coordinator = Coordinator(make_context("coordinator/0", "c"), run)
    coordinator.report("inference/0", "i", 1, [])
    inference = Handle("inference/0", Inference())
    context = make_context("actor/1", "a", cooperative=True)
    node = ActorNode(context, run, INDEX, Handle("coordinator/0", coordinator), {}, {}, {"": inference}, {})
    node.setup()
    node.inference, node.codec = inference, TimestepCodec(run.layout)
    yield node
    node.finish()


def acts(action=0):
    """The answer of an inference node: the same action for every environment."""
    return True, [np.full(ENVIRONMENTS, action)]


def step(actor, *answers):
    """Takes a step for every answer, and returns what the inference node has received."""
    actor.inference.node.answers += answers
    for _ in answers:
        actor.step()
    received, actor.inference.node.received = actor.inference.node.received, []
    return received


def test_its_timesteps_are_numbered_and_sent_with_who_it_is(actor):
    received = step(actor, acts(), acts(1), acts())
    assert [(index, number) for index, _, _, number, _ in received] == [(INDEX, number) for number in range(3)]
    assert len({(incarnation, seed) for _, incarnation, seed, _, _ in received}) == 1
    timesteps = [actor.codec.unpack(content) for *_, content in received]
    assert timesteps[0].first.all() and not timesteps[1].first.any()
    assert timesteps[0].observation.shape == (ENVIRONMENTS, 4)
    assert actor.environment_steps == 3 * ENVIRONMENTS


def test_the_actions_are_taken(actor):
    # CartPole's third number is the angle, which a push to the right makes smaller.
    received = step(actor, *[acts(1)] * 5)
    before, after = (actor.codec.unpack(received[index][-1]).observation[:, 2] for index in (0, 4))
    assert (after < before).all()


def test_a_timestep_without_an_action_is_sent_again(actor):
    first, second, third = step(actor, (True, None), acts(), (True, None))
    assert first == second != third
    assert actor.environment_steps == ENVIRONMENTS


def test_the_newest_timestep_is_observed_before_the_other_nodes_take_their_turns(actor):
    step(actor, acts())
    (observed,) = actor.inference.node.observed
    (next_sent,) = step(actor, (True, None))
    assert observed == next_sent


def test_an_inference_node_that_does_not_answer_is_called_at_its_new_address(actor):
    clients = actor.inference.clients
    actor.context.stop.set()  # `step` does not wait.
    first, second = step(actor, StatusNotOk("lost"), acts())
    assert first == second and actor.inference.clients == clients + 1


def test_after_a_restart_of_its_inference_node_it_begins_anew_with_another_seed(actor):
    received = step(actor, acts(), acts(), (False, None), acts())
    (_, incarnation, seed, number, _), (_, new_incarnation, new_seed, new_number, content) = received[2:]
    assert number == 2 and new_number == 0
    assert incarnation != new_incarnation and seed != new_seed
    assert actor.codec.unpack(content).first.all()


def test_what_it_reports(actor):
    step(actor, *[acts(1)] * 12)  # CartPole falls after about ten pushes to one side.
    assert actor.items_written == 10 * INDEX
    report = actor.collect()
    assert report.counts["environment_steps"] == actor.environment_steps
    assert report.counts["episodes"] == len(report.episodes) > 0
    assert all(8 <= length <= 12 and value == length for value, length in report.episodes)
    assert actor.collect().episodes == []
