"""Messages between nodes and the coordinator, as Courier sends them and as they arrive."""

import numpy as np
import pytest
import tree

from callboard.launch.nodes.reports.messages import (
    Command,
    ControlState,
    LeaseRequest,
    NodeHealth,
    Reply,
    Report,
    RunState,
    plain_message,
)

PLAIN = (bool, int, float, str, bytes, type(None))
HEALTH = NodeHealth("host", 7, 0.5, 2**20, "acting", {"data": 0.25}, 3)


@pytest.mark.parametrize(
    "message",
    [
        Report(),
        Report(
            {"environment_steps": 3},
            {"loss": 0.5},
            [[1.0, 2]],
            {"evaluator/return": 1.0},
            LeaseRequest(8, True),
            0.5,
            [Reply("1", "", b"result")],
            [("stop", "it is enough")],
            HEALTH,
            [[None, {"height": [1.0]}]],
            [[3, {"left": 1.0}, {"left": "red"}, None]],
            True,
        ),
        RunState(False, 0, {}, None, 0.5),
        RunState(
            True, 8, {"actor/0": "a"}, ["c", 1], 2.0, 16, {"learner/0": 0.5}, ControlState(1, 2, {"level": 3})
        )._replace(commands=[Command("1", "save", b"arguments")], finished=["red"]),
    ],
)
def test_a_message_arrives_as_it_was_sent(message):
    sent = plain_message(message)
    assert all(type(field) in PLAIN for field in tree.flatten(sent)) and type(sent) is list
    arrived = type(message).of(sent)
    assert plain_message(arrived) == sent
    for name in ("lease", "health", "control"):
        assert type(getattr(arrived, name, None)) is type(getattr(message, name, None))
    for name in ("replies", "commands"):
        assert list(getattr(arrived, name, [])) == list(getattr(message, name, []))


def test_numpy_values_are_sent_as_pythons_own():
    report = Report(
        {"environment_steps": np.int64(3)},
        {np.str_("loss"): np.float64(0.5)},
        np.array([[1.0, 2.0]], np.float32),
        requests=[("task", {"level": np.int32(2), "open": np.True_}), ("stop", np.str_("it is enough"))],
        episode_values=[[None, {"height": [np.float64(1.0), np.float32(0.25)]}]],
    )
    sent = plain_message(report)
    assert all(type(field) in PLAIN for field in tree.flatten(sent))
    assert all(type(name) is str for name in sent[1])
    assert sent[:3] == [{"environment_steps": 3}, {"loss": 0.5}, [[1.0, 2.0]]]
    assert sent[7] == [["task", {"level": 2, "open": True}], ["stop", "it is enough"]]
