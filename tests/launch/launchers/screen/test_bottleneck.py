"""Who waits for whom, in words."""

import pytest

from callboard.launch.launchers.screen.bottleneck import find_bottleneck


@pytest.mark.parametrize(
    "learner, actor, inference, part, words",
    [
        ({"data": 0.8}, {}, None, "actors", "the learner waits for data 80% of the time: actors are the bottleneck"),
        ({}, {"replay": 0.6}, None, "learner", "actors wait 60% of the time: the learner is the bottleneck"),
        ({"data": 0.4}, {"learner": 0.5}, None, "", "actors and learner take turns: actors wait 50% of the time"),
        ({"data": 0.9}, {"replay": 0.9}, None, "replay", "replay is the bottleneck"),
        ({"data": 0.9}, {"inference": 0.7}, {}, "inference", "inference is the bottleneck"),
        ({}, {"inference": 0.9}, {"replay": 0.8}, "learner", "actors wait 80% of the time: the learner is"),
        ({"data": 0.1}, {"inference": 0.5}, {}, "", "neither actors nor the learner wait"),
    ],
)
def test_the_part_that_the_others_wait_for_is_named(learner, actor, inference, part, words):
    waiting = {"learner": learner, "actor": actor, **({} if inference is None else {"inference": inference})}
    found = find_bottleneck(waiting, {"learner_steps": 10})
    assert found.part == part and words in found.description


def test_a_link_that_needs_long_for_the_weights_is_named_with_what_helps():
    found = find_bottleneck({}, {"learner_steps": 0, "slow_weights": [34e6, 27.2, 4]})
    assert found.part == "link"
    assert found.description == (
        "weights of 34 MB take 27 s to 4 machines: the link to the learner is the bottleneck; publish_every_steps=100 "
        'sends them less often, inference="central" to fewer nodes'
    )


def test_nothing_is_said_before_it_is_known():
    assert find_bottleneck({}, {}) is None
    assert find_bottleneck({"actor": {}}, {"learner_steps": 10}) is None
    waiting = {"actor": {}, "learner": {"data": 1.0}}
    assert find_bottleneck(waiting, {}).description == "the learner waits for its first batch"


def test_a_policy_server_waits_for_simulators():
    waiting = {"learner": {"data": 0.8}, "actor": {}}
    found = find_bottleneck(waiting, {"learner_steps": 10, "policy_server/open_episodes": 0.0})
    assert found.part == "simulators"
    assert found.description == "the learner waits for data 80% of the time: it waits for simulators"
