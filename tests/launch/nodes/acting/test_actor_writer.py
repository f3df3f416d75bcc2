"""An actor's writer waits for replay and for newer weights, and starts over with a replaced server."""

import threading
import types

import pytest

from callboard.data import Layout, Version
from callboard.launch.nodes.acting.actor_writer import ActorWriter
from callboard.launch.nodes.reports.reporting import KnownLearners
from callboard.replay import Pace, ReplayHandle


class Writer:
    """Keeps how often it was called; `is_ready` is what replay answers."""

    items_written = 0

    def __init__(self):
        self.is_ready = True
        self.limits = []
        self.timeouts = []
        self.closed = False

    def ready(self, timeout, max_pending=None):
        self.limits.append(max_pending)
        self.timeouts.append(timeout)
        return self.is_ready

    def append(self, record, state):
        assert self.is_ready

    def close(self):
        self.closed = True


class World:
    """An actor's writer, the agent's writers that it has made, and the incarnation of its replay server."""

    def __init__(self, pace, learners=1):
        self.incarnation = "a"
        self.made = []
        self.short_of_data = {}
        replay = types.SimpleNamespace(pace=pace, writer=self._make)
        agent = types.SimpleNamespace(
            make_replay=lambda layout: replay,
            make_writer=lambda handle, layout, actor, networks: self._make(handle, actor),
        )
        layout = Layout(
            spec=None, envs_per_actor=1, actors=4, shards=1, replicas=learners, seed=1, max_steps=1, learners=learners
        )
        handle = ReplayHandle(lambda: ["localhost:1"], lambda: [self.incarnation])
        self.finished = False
        self.writer = ActorWriter(
            agent,
            layout,
            3,
            handle,
            KnownLearners(self, ""),
            None,
        )

    @property
    def state(self):
        """What the coordinator has answered."""
        short_of_data = {f"learner/{rank}": seconds for rank, seconds in self.short_of_data.items()}
        return types.SimpleNamespace(short_of_data=short_of_data, finished=[""] * self.finished, stopping=False)

    def _make(self, replay, actor):
        self.made.append(Writer())
        return self.made[-1]


def test_a_replaced_server_gets_a_new_writer_and_a_new_sequence():
    world = World(Pace(0, unroll_length=2, items_per_actor=1))
    assert world.writer.may_act(Version(0, 0)) and not world.writer.count_timestep()
    world.incarnation = "b"
    assert not world.writer.caught_up() and world.made[0].closed
    assert world.writer.caught_up() and len(world.made) == 2
    assert world.writer.may_act(Version(0, 0))
    assert [world.writer.count_timestep() for _ in range(2)] == [False, True]


def test_only_a_complete_sequence_must_have_reached_replay():
    world = World(Pace(0, unroll_length=2, items_per_actor=1))
    world.writer.caught_up()
    world.writer.may_act(Version(0, 0))
    world.writer.count_timestep()
    world.writer.caught_up()
    world.writer.count_timestep()
    world.made[0].is_ready = False
    assert not world.writer.caught_up()
    assert world.made[0].limits == [0, None, 0]


def test_without_pacing_an_actor_needs_no_newer_weights():
    world = World(None)
    for _ in range(3):
        assert world.writer.caught_up() and world.writer.may_act(Version(0, 0)) and not world.writer.count_timestep()
    assert world.made[0].limits == [None] * 3


def test_an_actor_waits_for_no_learner_that_has_made_its_last_step():
    """Other policies of the run may still learn, and need the actor's environments."""
    world = World(Pace(0, unroll_length=1, items_per_actor=1))
    assert world.writer.may_act(Version(0, 0)) and world.writer.count_timestep()
    world.made[0].is_ready = False
    assert not world.writer.caught_up() and not world.writer.may_act(Version(0, 0))
    world.finished = True
    assert world.writer.caught_up() and world.writer.may_act(Version(0, 0))
    # A restarted coordinator has not heard of it yet.
    world.finished = False
    for _ in range(2):
        assert world.writer.caught_up() and world.writer.may_act(Version(0, 0))
        world.writer.append(None, None)
        world.writer.flush(threading.Event())
        world.writer.count_timestep()


@pytest.mark.parametrize("learner", [0, 1])
def test_an_actor_helps_the_learner_that_it_feeds(monkeypatch, learner):
    world = World(Pace(0, unroll_length=1, items_per_actor=1), learners=2)
    assert world.writer.may_act(Version(0, 0)) and world.writer.count_timestep()
    assert not world.writer.may_act(Version(0, 0))
    monkeypatch.setattr(world.writer._pacer, "_clock", lambda: float("inf"))
    world.short_of_data[learner] = 1e6
    # Actor 3 of two learners feeds learner 1.
    assert world.writer.may_act(Version(0, 0)) == (learner == 1)


def test_what_is_left_is_sent_without_waiting():
    world = World(None)
    world.writer.send_remaining()
    assert (world.made[0].limits, world.made[0].timeouts) == ([0], [0.0])
    world.finished = True
    world.writer.caught_up()
    world.writer.send_remaining()
    assert world.made[0].limits == [0], "nothing is sent to a learner that has finished"
