"""What the coordinator knows of all nodes."""

import pytest

from callboard.launch.launchers.screen.bottleneck import find_bottleneck
from callboard.launch.nodes.coordination.node_overview import NodeOverview
from callboard.launch.nodes.reports.messages import NodeHealth


def health(weights=None, **waiting):
    named = {name.replace("_", " "): fraction for name, fraction in waiting.items()}
    return NodeHealth("host", 1, 0.5, 2**30, "acting", named, weights)


@pytest.fixture
def overview():
    return NodeOverview(clock=lambda: 10.0)


def test_waiting_is_a_mean_over_the_nodes_of_a_kind(overview):
    overview.update("actor/0", "a", health(replay_to_take_data=0.5, newer_weights=0.1))
    overview.update("actor/1", "b", health())
    overview.update("actor/2", "c", None)
    overview.update("learner/0", "d", NodeHealth("host", 2, 1.0, 1, "in learner step", {"data": 0.25}))
    assert overview.waiting() == {"actor": {"learner": 0.05, "replay": 0.25}, "learner": {"data": 0.25}}
    assert overview.metrics() == {
        "restarts": 0,
        "learner/waiting_for_data": 0.25,
        "actor/waiting_for_learner": pytest.approx(0.3),
    }


def test_a_node_that_compiles_is_left_out(overview):
    learner = NodeHealth("host", 2, 1.0, 1, "in first learner step (compiling)", {"data": 0.9}, starting=True)
    overview.update("learner/0", "a", learner)
    overview.update("actor/0", "b", health(replay_to_take_data=0.9))
    assert overview.waiting() == {"actor": {"replay": 0.9}}
    assert find_bottleneck(overview.waiting(), {"learner_steps": 10}) is None


def test_waiting_for_the_end_of_the_run_is_left_out(overview):
    overview.update("actor/0", "a", health(steps_that_are_left_to_do=0.9))
    assert overview.waiting() == {"actor": {}}


def test_a_new_incarnation_is_a_restart_and_begins_without_health(overview):
    overview.update("actor/0", "a", health(weights=3), learner_step=5)
    overview.update("actor/0", "a", None, learner_step=500)
    assert overview.table()[0]["lag"] == 2
    overview.update("actor/0", "b", None)
    assert overview.restarts == {"actor/0": 1} and overview.metrics() == {"restarts": 1}
    assert overview.table() == [{"node": "actor/0", "silent": 0.0, "restarts": 1}]


def test_the_table_is_ordered_by_kind_and_number(overview):
    for name in ("actor/10", "replay/0", "actor/2"):
        overview.update(name, "a", health(weights=9))
    rows = overview.table()
    assert [row["node"] for row in rows] == ["actor/2", "actor/10", "replay/0"]
    assert rows[0]["memory"] == 2**30 and "lag" not in rows[0]
    # A learner that was restarted from a checkpoint is behind the actors for a while.
    overview.update("actor/2", "a", health(weights=9), learner_step=4)
    assert overview.table()[0]["lag"] == 0


def test_nodes_that_have_not_reported_are_in_the_table():
    overview = NodeOverview(lambda: 1.0, expected=["learner/0", "actor/0"])
    overview.update("actor/0", "a", None)
    assert [row["node"] for row in overview.table()] == ["actor/0", "learner/0"]
    assert "process" not in overview.table()[1], "which is shown as starting"
