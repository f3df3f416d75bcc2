"""What a node knows of learners, by the coordinator's last answer."""

import types

import pytest

from callboard.launch.nodes.reports.known_learners import KnownLearners
from callboard.launch.nodes.reports.messages import RunState

STATE = RunState(False, 0, {}, None, 0.5, short_of_data={"learner/1": 1.0, "learner/red/0": 2.0}, finished=["red"])


@pytest.mark.parametrize("policy, rank, seconds", [("", 1, 1.0), ("", 0, 0.0), ("red", 0, 2.0), ("blue", 0, 0.0)])
def test_each_policy_and_rank_has_its_own_shortage(policy, rank, seconds):
    assert KnownLearners(types.SimpleNamespace(state=STATE), policy).short_of_data(rank) == seconds


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("while_others_learn", [False, True])
def test_learners_have_finished_until_the_run_ends_where_only_others_count(stopping, while_others_learn):
    informed = types.SimpleNamespace(state=STATE._replace(stopping=stopping))
    finished = {policy: KnownLearners(informed, policy, while_others_learn).have_finished for policy in ("red", "blue")}
    assert finished == {"red": not (stopping and while_others_learn), "blue": False}


def test_it_follows_the_newest_answer():
    informed = types.SimpleNamespace(state=STATE)
    learners = KnownLearners(informed, "red")
    informed.state = STATE._replace(short_of_data={}, finished=[])
    assert learners.short_of_data(0) == 0.0 and not learners.have_finished
