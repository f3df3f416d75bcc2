"""Control of a run: targets and pauses, commands and their results, and what is kept for a resumed run."""

import math

import pytest

from callboard.agents.impala import Impala
from callboard.agents.schedules import Schedule
from callboard.launch.checked_run import Run
from callboard.launch.experiment import Experiment
from callboard.launch.nodes.run_control import Command, ControlFile, ControlState, Reply, RunControl, Target
from callboard.launch.run_directory.layout import RunDirectory
from callboard.nested_settings import with_values


@pytest.fixture
def control():
    return RunControl(paused=True)


def test_a_run_without_a_session_never_pauses():
    control = RunControl(paused=False)
    control.update(10**9, 10**9)
    assert not control.paused and math.isinf(control.environment_limit) and control.state.learner_limit is None


def test_a_run_pauses_at_its_target_and_continues_at_the_next(control):
    control.update(0, 0)
    assert control.paused and control.environment_limit == 0 and control.state.learner_limit == 0
    control.run_until(Target(environment_steps=100))
    control.update(99, 7)
    assert not control.paused and control.environment_limit == 100 and control.state.learner_limit is None
    control.update(100, 7)
    assert control.paused and control.environment_limit == 0 and control.state.learner_limit == 0
    control.run_until(Target(learner_steps=9))
    control.update(100, 8)
    assert not control.paused and control.state.learner_limit == 9
    control.update(120, 9)
    assert control.paused


def test_a_command_waits_for_each_node_until_it_has_answered(control):
    command = Command("1", "save", b"")
    for _ in range(2):
        control.add_command(command, ["learner/0", "actor/0"])
    assert control.commands_for("learner/0") == [command] and control.commands_for("actor/1") == []
    for result in (b"first", b"again"):
        control.take_replies("learner/0", [Reply("1", "", result), Reply("unknown", "", b"")])
    assert control.commands_for("learner/0") == [] and control.commands_for("actor/0") == [command]
    assert control.replies("1") == {"learner/0": Reply("1", "", b"first")}


def test_old_commands_are_forgotten(control, monkeypatch):
    monkeypatch.setattr("callboard.launch.nodes.run_control.MAX_COMMANDS", 2)
    for number in range(3):
        control.add_command(Command(str(number), "save", b""), ["learner/0"])
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


def control_file(path, agent):
    return ControlFile(Run(Experiment(agent, "CartPole-v1"), None, RunDirectory(path)))


def test_changes_are_kept_for_a_resumed_run_unless_it_is_configured_otherwise(control, tmp_path):
    agent = Impala()
    file = control_file(tmp_path, agent)
    assert file.content(control) == {} and file.load() == ControlState()
    control.set_task([3, "hard"])
    control.change_settings({"entropy_cost": 0.1, "optimizer.learning_rate": 0.5})
    file.save(control)
    resumed = file.load()
    assert resumed.task == [3, "hard"]
    assert resumed.settings == {"entropy_cost": 0.1, "optimizer.learning_rate": 0.5}
    configured = with_values(agent, {"entropy_cost": 0.2})
    assert control_file(tmp_path, configured).load().settings == {"optimizer.learning_rate": 0.5}


def test_a_changed_schedule_stays_changed_until_it_is_configured_otherwise(tmp_path, control):
    agent = with_values(Impala(), {"entropy_cost": Schedule(start=1.0)})
    control.change_settings({"entropy_cost": 0.5})
    control_file(tmp_path, agent).save(control)
    assert control_file(tmp_path, agent).load().settings == {"entropy_cost": 0.5}
    other = with_values(Impala(), {"entropy_cost": Schedule(start=2.0)})
    assert control_file(tmp_path, other).load().settings == {}
