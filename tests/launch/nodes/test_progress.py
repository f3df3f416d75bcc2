"""Marks of a node's main loop, the heartbeats that carry them, and environments whose steps are marked."""

import queue

import numpy as np
import pytest
from scripted_environments import DmScript

from callboard.environments import DmEnvBatch
from callboard.launch.nodes.progress import HEARTBEAT, HeartbeatSender, MarkedEnvironment, NodeHeartbeat, Progress


@pytest.fixture
def progress():
    return Progress()


def test_a_new_node_is_starting(progress):
    assert progress.heartbeat() == NodeHeartbeat(0, "starting", "slow")


def test_work_counts_as_progress_and_waiting_does_not(progress):
    progress.works("in environment step")
    assert progress.heartbeat() == NodeHeartbeat(1, "in environment step", "work")
    progress.works_slowly("compiling")
    assert progress.heartbeat() == NodeHeartbeat(2, "compiling", "slow")
    progress.works_with_others("in learner step")
    assert progress.heartbeat() == NodeHeartbeat(3, "in learner step", "shared")
    progress.waits("data")
    assert progress.heartbeat() == NodeHeartbeat(3, "waiting for data", "wait")


def test_steps_count_only_for_a_node_that_marks_nothing_itself(progress):
    progress.begins_step()
    progress.begins_step()
    assert progress.heartbeat() == NodeHeartbeat(2, "in its step", "work")
    progress.works("acting")
    progress.begins_step()
    assert progress.heartbeat() == NodeHeartbeat(3, "acting", "work")


def test_work_that_waits_for_others_is_no_work(progress):
    awaited = "data"
    progress.waits_for = lambda: awaited
    progress.works("in learner step")
    assert progress.heartbeat() == NodeHeartbeat(1, "waiting for data", "wait")
    awaited = ""
    assert progress.heartbeat() == NodeHeartbeat(1, "in learner step", "work")


def test_heartbeats_are_sent_until_the_sender_is_closed(progress):
    sent, made = queue.Queue(), queue.Queue()

    def send(kind, content):
        sent.put((kind, content))
        progress.works("acting")
        if content.marks == 2:
            made.get(timeout=10.0).close()

    made.put(HeartbeatSender(progress, send, seconds=0.001))
    received = [sent.get(timeout=10.0) for _ in range(3)]
    assert [kind for kind, _ in received] == [HEARTBEAT] * 3
    assert [content.marks for _, content in received] == [0, 1, 2]
    with pytest.raises(queue.Empty):
        sent.get(timeout=0.05)


class Looking(DmScript):
    """Keeps the heartbeat that would be sent while it works."""

    def __init__(self, progress):
        super().__init__()
        self._progress = progress
        self.seen = []

    def reset(self):
        self.seen.append(self._progress.heartbeat())
        return super().reset()

    def step(self, action):
        self.seen.append(self._progress.heartbeat())
        return super().step(action)

    def close(self):
        self.seen.append(self._progress.heartbeat())
        super().close()

    def render(self):
        return np.full((2, 2, 3), 7, np.uint8)

    def control_timestep(self):
        return 0.04


def test_what_an_environment_does_is_marked_while_it_does_it(progress):
    single = Looking(progress)
    marked = MarkedEnvironment(DmEnvBatch([single]), progress)
    assert marked.reset().first.all()
    assert progress.heartbeat()[1:] == ("in first forward pass (compiling)", "slow", 0)
    assert marked.step(np.array([1])).reward.tolist() == [2.0]
    assert progress.heartbeat()[1:] == ("acting", "work", 0)
    marked.close()
    assert [heartbeat[1:] for heartbeat in single.seen] == [
        ("in environment reset", "slow", 0),
        ("in environment step", "work", 0),
        ("closing its environments", "work", 0),
    ]
    assert single.closed == 1


def test_everything_else_is_that_of_the_environment(progress):
    batch = DmEnvBatch([Looking(progress), Looking(progress)])
    marked = MarkedEnvironment(batch, progress)
    assert marked.spec is batch.spec and marked.batch_size == 2
    assert marked.frames_per_second == 25
    assert (marked.render() == 7).all()


def test_the_time_for_which_a_node_waited_is_kept_by_what_it_waited_for():
    now = 0.0
    progress = Progress(clock=lambda: now)
    progress.works("acting")
    now = 1.0
    progress.waits("newer weights")
    progress.waits("newer weights")
    now = 3.0
    assert progress.seconds_waited() == {"newer weights": 2.0}
    progress.waits("replay to take data")
    now = 3.5
    progress.works("acting")
    now = 9.0
    progress.waits("newer weights")
    now = 10.0
    assert progress.seconds_waited() == {"newer weights": 3.0, "replay to take data": 0.5}
