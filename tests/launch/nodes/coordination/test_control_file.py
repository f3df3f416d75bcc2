"""What has been changed in a run is kept for a resumed one."""

import pytest

from callboard.agents.impala import Impala
from callboard.agents.schedules import Schedule
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.control_file import ControlFile
from callboard.launch.nodes.reports.messages import ControlState
from callboard.launch.nodes.reports.run_control import RunControl
from callboard.launch.run_directory.layout import RunDirectory
from callboard.settings.nested_settings import with_values


@pytest.fixture
def control():
    return RunControl(paused=True)


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
