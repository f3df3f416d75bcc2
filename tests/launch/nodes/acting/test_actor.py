"""The actor node: it steps its environments with the learner's weights, and writes to replay."""

import pytest
from local_nodes import small_run

ENVIRONMENTS = 2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    # With an item for each environment.
    options = ["--evaluator", "false", "--agent.replay.sampled-together", "1"]
    with small_run("apex-cartpole", tmp_path_factory.mktemp("run"), *options) as nodes:
        yield nodes


def test_every_step_acts_in_all_environments_and_its_items_are_in_replay(nodes):
    actor = nodes["actor/0"]
    steps, items = actor.environment_steps, actor.items_written
    assert actor.first_slot == 0
    for _ in range(20):
        actor.step()
    assert ENVIRONMENTS * 15 <= actor.environment_steps - steps <= ENVIRONMENTS * 20
    # The first items follow after as many steps as they span.
    assert ENVIRONMENTS * 10 <= actor.items_written - items <= ENVIRONMENTS * 20
    assert nodes["replay/0"].collect().values["replay/items_0"] == actor.items_written


def test_what_it_reports(nodes):
    actor = nodes["actor/0"]
    actor.collect()
    for _ in range(40):
        actor.step()
    report = actor.collect()
    assert report.counts["environment_steps"] == actor.environment_steps
    assert report.episodes and all(value == length for value, length in report.episodes)
    assert report.lease is None
    assert actor.collect().episodes == []


def test_a_node_that_was_not_set_up_takes_no_step(tmp_path):
    with small_run("apex-cartpole", tmp_path, "--evaluator", "false", only=("coordinator/0",)) as nodes:
        actor = nodes["actor/0"]
        actor.step()
        assert (actor.environment_steps, actor.items_written) == (0, 0)
        assert actor.collect().counts == {}
