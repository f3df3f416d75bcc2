"""An actor of several policies, with a real coordinator and environments, and inference nodes that are scripted."""

import threading

import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import RandomPolicy
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.nodes.acting.actor import ActorNode
from callboard.launch.nodes.acting.timestep_codec import TimestepCodec
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.layout import RunDirectory

ENVIRONMENTS = 2


class Handle:
    """Reaches an object in this process."""

    def __init__(self, name, node):
        self.name, self.node = name, node

    def client(self, timeout):
        return self.node


class Inference:
    """Answers as the test decides, by default with the action 0, and notes what it receives."""

    def __init__(self):
        self.answers, self.received = [], []

    def act(self, *timestep):
        self.received.append(timestep)
        return self.answers.pop(0) if self.answers else (True, [np.zeros(ENVIRONMENTS, np.int32)])

    def observe(self, *timestep):
        pass

    def items_written(self, index):
        return 10


@pytest.fixture
def make_actor(tmp_path):
    """Makes an actor of these policies that was set up, with inference nodes by policy as `actor.nodes`."""
    actors = []

    def make(**policies):
        experiment = Experiment(
            Impala(), "echo_agents:Echo", policies=policies, envs_per_actor=ENVIRONMENTS, inference="central"
        )
        run = Run.of(experiment, check_experiment(experiment), RunDirectory(tmp_path))
        run.directory.create()
        coordinator = Coordinator(_context("coordinator/0"), run)
        nodes = {name: Inference() for name in run.policies}
        for name in nodes:
            coordinator.report(f"inference/{name}/0", name, 1, [])
        actor = ActorNode(
            _context("actor/0", cooperative=True),
            run,
            0,
            Handle("coordinator/0", coordinator),
            {},
            {},
            {name: Handle(f"inference/{name}/0", node) for name, node in nodes.items()},
            {},
        )
        actors.append(actor)
        actor.setup()
        actor.nodes = nodes
        actor.codecs = {name: TimestepCodec(layout) for name, layout in run.policies.items()}
        return actor

    yield make
    for actor in actors:
        actor.finish()


def _context(name, **settings):
    return NodeContext(name, name, threading.Event(), lambda kind, content: None, None, **settings)


def last_seen(actor, name):
    """The newest timestep that an inference node has received, and its number."""
    *_, number, content = actor.nodes[name].received[-1]
    return actor.codecs[name].unpack(content), number


def test_every_policy_gets_the_observations_of_its_agent(make_actor):
    actor = make_actor(left={}, right={})
    actor.step()
    assert last_seen(actor, "left")[0].observation.shape == (ENVIRONMENTS, 3)
    assert last_seen(actor, "right")[0].observation.shape == (ENVIRONMENTS, 4)
    assert actor.environment_steps == ENVIRONMENTS and actor.items_written == 20
    assert actor.items_written_for("right") == 10 and actor.weights_step() is None


def test_no_environment_is_stepped_before_all_policies_have_acted(make_actor):
    actor = make_actor(left={}, right={})
    actor.nodes["right"].answers = [(True, None)] * 3
    for _ in range(3):
        actor.step()
    assert actor.environment_steps == 0
    assert len(actor.nodes["left"].received) == 1, "its action is kept"
    actor.step()
    assert actor.environment_steps == ENVIRONMENTS


def test_all_policies_begin_anew_when_the_state_of_one_is_lost(make_actor):
    actor = make_actor(left={}, right={})
    actor.step()
    actor.step()
    (before, _), (_, number) = last_seen(actor, "left"), last_seen(actor, "right")
    assert number == 1 and not before.first.any()
    actor.nodes["right"].answers = [(False, None)]
    actor.step()
    actor.step()
    for name in ("left", "right"):
        timestep, number = last_seen(actor, name)
        assert number == 0 and timestep.first.all()
    incarnations = [received[1] for received in actor.nodes["left"].received]
    assert incarnations[-1] != incarnations[0]


def test_random_policies_act_here(make_actor):
    actor = make_actor(left={}, right=RandomPolicy())
    for _ in range(9):
        actor.step()
    report = actor.collect()
    assert report.counts["environment_steps"] == 9 * ENVIRONMENTS - ENVIRONMENTS
    # "right" acts in all but one step of an episode, in which it is absent.
    assert report.counts["left/agent_steps"] == 8 * ENVIRONMENTS
    assert report.counts["right/agent_steps"] == 7 * ENVIRONMENTS
    assert [episode.players for episode in report.joint_episodes] == [{"left": "left", "right": "right"}] * 2
    assert actor.collect().joint_episodes == []
