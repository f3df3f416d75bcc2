"""The number of actors of a run in which they come and go, with a clock of the tests."""

import pytest

from callboard.launch.nodes.coordination.run_limits import ActorQuorum


class Counted:
    def __init__(self, least):
        self.now = 0.0
        self.lines = []
        self.quorum = ActorQuorum(least, self.lines.append, lambda: self.now)

    def after(self, seconds, *nodes):
        self.now += seconds
        for node in nodes:
            self.quorum.hear(node)
        return self.quorum.suffices()


def test_a_fixed_number_always_suffices():
    counted = Counted(None)
    assert not counted.quorum.counts and counted.after(100.0) and counted.lines == []


def test_the_run_waits_for_the_fewest_and_says_so_once():
    counted = Counted(2)
    assert not counted.after(1.0, "actor/7")
    assert counted.lines == [], "the others may be starting"
    assert not counted.after(15.0, "actor/7") and not counted.after(15.0, "actor/7")
    assert counted.lines == ["waits for actors: 1 of at least 2 are there"]
    assert counted.after(1.0, "actor/7", "actor/3", "actor/3")
    assert counted.lines[1:] == ["continues, with 2 actors"]


@pytest.mark.parametrize("others", [("learner/0", "evaluator/0"), ()])
def test_other_nodes_are_no_actors(others):
    assert not Counted(1).after(20.0, *others)


def test_an_actor_that_is_silent_has_left_and_may_come_back():
    counted = Counted(2)
    names = ["actor/0", "actor/1", "actor/2"]
    assert counted.after(0.0, *names)
    assert counted.after(29.0, "actor/1", "actor/2") and counted.quorum.present == 3
    assert counted.after(2.0) and counted.quorum.present == 2 and counted.lines == []
    assert not counted.after(29.0, "actor/2")
    assert counted.lines == ["waits for actors: 1 of at least 2 are there"]
    assert counted.after(1.0, "actor/0")
    assert counted.lines[1:] == ["continues, with 2 actors"]
    assert not counted.after(31.0)
    assert counted.lines[2:] == ["waits for actors: 0 of at least 2 are there"]


def test_a_thousand_actors_cost_little():
    counted = Counted(1)
    for round_ in range(3):
        counted.after(20.0, *(f"actor/{index}" for index in range(0, 1000, 1 + round_ % 2)))
    assert counted.quorum.present == 1000
