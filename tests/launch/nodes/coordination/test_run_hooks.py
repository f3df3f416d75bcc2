"""What the coordinator does besides counting: metrics of episodes, stages of a curriculum, and callbacks."""

from types import SimpleNamespace

import pytest
from own_callbacks import Recorder

from callboard.agents.impala import Impala
from callboard.callbacks import CallbackFailed, Callbacks
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.curriculum import Stage
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.counters import Counters
from callboard.launch.nodes.coordination.run_hooks import RunHooks
from callboard.launch.nodes.reports.run_control import RunControl
from callboard.launch.run_directory.layout import RunDirectory

EASY, HARD = {"length": 2}, {"length": 5}
CURRICULUM = (Stage(EASY), Stage(HARD, when="episode/success >= 0.5", episodes=2))


@pytest.fixture
def make_hooks(tmp_path):
    def make(counters=None, control=None, **settings):
        run = Run(Experiment(Impala(), "own_callbacks:Walk", **settings), None, RunDirectory(tmp_path))
        counters, control = counters or Counters(), control or RunControl(paused=False)
        requests = []
        hooks = RunHooks(run, "coordinator/0", counters, control, lambda *request: requests.append(request))
        return hooks, counters, control

    return make


def test_a_run_without_any_has_no_further_metrics(make_hooks):
    hooks, _, control = make_hooks()
    assert hooks.row() == {} == hooks.histograms() and control.state.task is None
    assert not hooks.update(dict) and not hooks.has_results and hooks.counts == {}


def test_stages_set_the_task_and_are_kept_with_the_counters(make_hooks):
    hooks, counters, control = make_hooks(curriculum=CURRICULUM)
    assert control.state.task == EASY and hooks.row() == {"curriculum/stage": 1}
    hooks.add([[EASY, {"episode/success": [1.0, 0.0]}]], None)
    assert hooks.update(dict) and control.state.task == HARD
    assert hooks.row()["curriculum/stage"] == 2
    # A coordinator that is started again, with the counters and the task that were saved.
    restored = RunControl(paused=False)
    restored.restore(control.state)
    again, _, control = make_hooks(Counters(counters.sources), restored, curriculum=CURRICULUM)
    assert control.state.task == HARD and again.row()["curriculum/stage"] == 2


def test_metrics_and_histograms_of_episodes(make_hooks):
    hooks, _, _ = make_hooks(episode_metrics="success,place:sum:histogram")
    hooks.add([[None, {"episode/success": [1.0, 0.0], "episode/place_sum": [3.0, 5.0]}]], None)
    assert hooks.row()["episode/place_sum_max"] == 5.0
    assert hooks.histograms() == {"episode/place_sum": [3.0, 5.0]}


def test_what_callbacks_return_is_in_the_following_rows(make_hooks):
    recorder = Recorder()
    hooks, counters, _ = make_hooks(callbacks=(recorder,))
    assert hooks.has_results
    hooks.call("on_result", SimpleNamespace(environment_steps=10))
    counters.update("coordinator/0#a", hooks.counts)
    row = hooks.row()
    assert row["callbacks/half"] == 5.0 and 0 < row["callbacks/seconds"] < 5
    assert recorder.calls == [("result", "coordinator/0")]


class Timed(Callbacks):
    def on_result(self, run, result):
        return {"seconds": 1.0}


def test_a_metric_that_would_replace_one_of_the_run_is_refused(make_hooks):
    hooks, _, _ = make_hooks(callbacks=(Timed(),))
    with pytest.raises(CallbackFailed, match="'seconds' in on_result, but callbacks/seconds is the time"):
        hooks.call("on_result", SimpleNamespace(environment_steps=10))
