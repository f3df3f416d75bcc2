"""Control of a run: targets and pauses, changes, commands and their results."""

import math

import pytest

from callboard.launch.nodes.reports.large_contents import KEEP, PART_BYTES
from callboard.launch.nodes.reports.messages import Command, Reply
from callboard.launch.nodes.reports.run_control import RunControl, Target


@pytest.fixture
def control():
    return RunControl(paused=True)


def test_a_run_without_a_session_never_pauses():
    control = RunControl(paused=False)
    control.update(10**9, 10**9)
    assert not control.paused and math.isinf(control.environment_limit) and control.state_for("").learner_limit is None


def test_a_run_pauses_at_its_target_and_continues_at_the_next(control):
    control.update(0, 0)
    assert control.paused and control.environment_limit == 0 and control.state_for("").learner_limit == 0
    control.run_until(Target(environment_steps=100))
    control.update(99, 7)
    assert not control.paused and control.environment_limit == 100 and control.state_for("").learner_limit is None
    control.update(100, 7)
    assert control.paused and control.environment_limit == 0 and control.state_for("").learner_limit == 0
    control.run_until(Target(learner_steps=9))
    control.update(100, 8)
    assert not control.paused and control.state_for("").learner_limit == 1
    control.update(120, 9)
    assert control.paused


def test_limits_of_learners_count_the_steps_of_their_incarnations_and_share_what_is_left():
    control = RunControl(paused=True, policies=2)
    control.run_until(Target(learner_steps=20))
    control.take_learner("red", 3, at_rest=False)  # It was restarted after 6 steps.
    control.take_learner("blue", 8, at_rest=False)
    control.update(0, 17)
    assert [control.state_for(policy).learner_limit for policy in ("red", "blue")] == [5, 10]
    control.update(0, 20)
    assert [control.state_for(policy).learner_limit for policy in ("red", "blue")] == [3, 8]


def test_a_command_waits_for_each_node_until_it_has_answered(control):
    command = Command("1", "save", b"")
    for _ in range(2):
        control.send_command(*command[:3], ["learner/0", "actor/0"])
    assert control.commands_for("learner/0") == [command] and control.commands_for("actor/1") == []
    for result in (b"first", b"again"):
        control.take_replies("learner/0", [Reply("1", "", result), Reply("unknown", "", b"")])
    assert control.commands_for("learner/0") == [] and control.commands_for("actor/0") == [command]
    assert control.replies("1") == {"learner/0": ["1", "", b"first", 0]} and control.replies("2") is None


def test_parts_of_large_contents_come_one_at_a_time(control):
    """So that no answer to a report is larger than one of them, while other commands wait for none."""
    for number in range(3):
        control.send_command(f"part {number}", KEEP, b"x" * PART_BYTES, ["learner/0"])
    control.send_command("other", "save", b"", ["learner/0"])
    for number in range(3):
        assert [each.id for each in control.commands_for("learner/0")] == [f"part {number}", "other"]
        control.take_replies("learner/0", [Reply(f"part {number}", "", b"")])


def test_old_commands_are_forgotten(control, monkeypatch):
    monkeypatch.setattr("callboard.launch.nodes.reports.run_control.MAX_COMMANDS", 2)
    for number in range(3):
        control.send_command(str(number), "save", b"", ["learner/0"])
    assert [command.id for command in control.commands_for("learner/0")] == ["1", "2"]


def test_the_version_increases_with_every_change(control):
    versions = [control.state.version]
    for change in (
        lambda: control.set_task({"level": 1}),
        lambda: control.set_task({"level": 1}),
        lambda: control.change_settings({"entropy_cost": 0.1}),
        lambda: control.change_settings({"entropy_cost": 0.1}),
    ):
        change()
        versions.append(control.state.version)
    assert versions == [0, 1, 1, 2, 2]
