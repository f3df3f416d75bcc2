"""The watch over nodes that take turns in one thread, with a clock that advances by a second with every look."""

import threading

from callboard.launch.launchers.supervision.turn_watch import TurnWatch
from callboard.launch.nodes.progress import Progress
from callboard.runtime.deadlines import wait_until

TIMEOUT = 20.0
LOOKS = 120


class Turns:
    """Whose turn it is, the clock, and what the watch has reported."""

    def __init__(self, whose):
        self._whose = whose
        self.progress = {}
        self.now = 0.0
        self.said, self.overdue = [], []
        self.over = threading.Event()
        """Set after many looks, or when a node is overdue."""

    def turn(self):
        self.now += 1.0
        if self.now > LOOKS:
            self.over.set()
        name = self._whose(self.now)
        return name and (name, self.progress[name], TIMEOUT)

    def give_up(self, overdue):
        self.overdue.append(overdue)
        self.over.set()


def look(turns):
    """Lets the watch look until the end; its thread then ends too."""
    watch = TurnWatch(turns.turn, turns.said.append, turns.give_up, lambda: turns.now, seconds=0.001)
    assert turns.over.wait(10)
    if not turns.overdue:
        watch.close()
    assert wait_until(lambda: all(thread.name != "turn-watch" for thread in threading.enumerate()), 10, 0.001)


def test_a_node_that_hangs_for_longer_than_its_timeout_is_reported_once():
    turns = Turns(lambda now: "actor/0")
    turns.progress["actor/0"] = Progress()
    turns.progress["actor/0"].works("in environment step")
    look(turns)
    assert turns.overdue == [("actor/0", "in environment step for 21 s")]
    assert turns.said == ["actor/0: in environment step for 9 s, at most 20 s"]


def test_work_that_may_take_minutes_has_ten_of_them_whatever_the_timeout():
    turns = Turns(lambda now: "learner/0")
    turns.progress["learner/0"] = Progress()
    turns.progress["learner/0"].works_slowly("in first learner step (compiling)")
    look(turns)
    assert turns.overdue == []
    assert turns.said[0] == "learner/0: in first learner step (compiling) for 31 s, at most 600 s"


def test_the_time_of_a_node_begins_with_its_turn():
    turns = Turns(lambda now: f"actor/{now // 15 % 2:.0f}")
    for name in ("actor/0", "actor/1"):
        turns.progress[name] = Progress()
        turns.progress[name].works("in environment step")
    look(turns)
    assert turns.overdue == []


def test_a_node_that_waits_for_others_is_never_overdue():
    turns = Turns(lambda now: "learner/0")
    turns.progress["learner/0"] = Progress()
    turns.progress["learner/0"].waits("data")
    look(turns)
    assert turns.overdue == []


def test_before_the_first_turn_no_node_is_watched():
    turns = Turns(lambda now: None)
    look(turns)
    assert turns.overdue == turns.said == []
