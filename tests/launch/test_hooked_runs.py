"""Whole runs with episode metrics, callbacks and a curriculum, under every launcher."""

import dataclasses
import glob
import json

import pytest
from own_callbacks import Commanding, Raising, Recorder
from tensorflow.python.summary.summary_iterator import summary_iterator

from callboard.agents.impala import Impala
from callboard.launch.experiments.curriculum import Stage
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.run import run
from callboard.settings.nested_settings import from_values

EASY, HARD = {"length": 2}, {"length": 3}
AGENT = {"unroll_length": 5, "batch_size": 8, "network.hidden_sizes": (4,)}
LAUNCHERS = [
    ("inline", "local"),
    *(
        pytest.param(name, inference, marks=pytest.mark.slow)
        for name, inference in (
            ("inline", "central"),
            ("threads", "local"),
            ("threads", "central"),
            ("processes", "local"),
            ("processes", "central"),
            ("launchpad", "local"),
            ("hosts", "local"),
            ("ray", "local"),
        )
    ),
]


class Quiet:
    """A monitor that keeps what it is notified of."""

    def __init__(self):
        self.said = []

    def status(self, status):
        pass

    def notify(self, text):
        self.said.append(text)

    def close(self):
        pass


def experiment(directory, **settings):
    return Experiment(
        from_values(Impala, AGENT),
        "own_callbacks:Walk",
        run_dir=directory,
        actors=1,
        envs_per_actor=4,
        **{
            "evaluate_every": 1000,
            "evaluation_episodes": 4,
            "evaluation_envs": 2,
            "max_steps": 2500,
            **settings,
        },
    )


def rows(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("launcher, inference", LAUNCHERS)
def test_metrics_callbacks_and_curriculum(tmp_path, launcher, inference, launcher_named):
    recorder = Recorder(factor=3)
    stages = (Stage(EASY), Stage(HARD, when="episode/success >= 0.1", episodes=20))
    monitor = Quiet()
    outcome = run(
        experiment(
            tmp_path,
            inference=inference,
            callbacks=(recorder,),
            episode_metrics="success,place:sum:histogram,length,sucess",
            curriculum=stages,
            evaluation_task={"length": 4},
        ),
        launcher_named(launcher, actors=1),
        monitor,
    )
    assert outcome.exit_code == 0, outcome.error
    last = rows(tmp_path)[-1]
    assert last["curriculum/stage"] == 2 and last["episode/length_max"] == 3.0
    assert 0 <= last["episode/success"] <= 1 and last["episode/place_sum_min"] < last["episode/place_sum_max"]
    assert last["episode/twice"] == pytest.approx(3 * last["actor/episode_length"])
    assert last["callbacks/half"] > 0 and 0 < last["callbacks/seconds"] < 60
    evaluation = [row for row in rows(tmp_path) if "evaluator/return" in row][-1]
    assert evaluation["evaluator/episode/length"] == 4.0 and evaluation["evaluator/callbacks/episodes"] == 4
    assert evaluation["evaluator/episode/success"] == evaluation["evaluator/return"]
    missing = "actor/0: no info so far has the episode metric 'sucess'; did you mean 'success'?"
    assert [line for line in monitor.said if "sucess" in line] == [missing]
    assert histograms(tmp_path) == {"episode/place_sum_distribution"}
    if launcher in ("inline", "threads", "launchpad"):
        kinds = [call[0] for call in recorder.calls]
        assert kinds[0] == "run_start" and kinds[-1] == "run_end"
        starts = [call for call in recorder.calls if call[0] == "start"]
        assert {call[1] for call in starts} == {0, 1, 2, 3}
        assert [call[2] for call in starts][0] == EASY and starts[-1][2] == HARD
        assert starts[0][3] == EASY and starts[-1][3] == HARD
    # The run is continued with the same callbacks and with the task that it had.
    again = read_experiment(tmp_path)
    assert again.callbacks == ({"name": "own_callbacks:Recorder", "factor": 3},)
    again = dataclasses.replace(again, max_steps=last["environment_steps"] + 500)
    assert run(again, launcher_named(launcher, actors=1), Quiet(), resume=True).exit_code == 0
    last = rows(tmp_path)[-1]
    assert last["curriculum/stage"] == 2 and last["episode/length_min"] == 3.0


def histograms(directory):
    """The names of all histograms that were written for TensorBoard."""
    names = set()
    for path in glob.glob(str(directory / "tensorboard" / "**" / "*tfevents*"), recursive=True):
        for event in summary_iterator(path):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "histograms":
                    names.add(value.tag)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "threads", "processes", "launchpad", "hosts", "ray"])
def test_a_callback_that_raises_ends_the_run_with_its_traceback(tmp_path, launcher, launcher_named):
    outcome = run(experiment(tmp_path, callbacks=(Raising(),)), launcher_named(launcher, actors=1), Quiet())
    assert outcome.exit_code == 1 and outcome.failed_node == "actor/0"
    assert "own_callbacks.py" in outcome.error and "ValueError: broken on purpose" in outcome.error


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "threads", "processes", "launchpad", "hosts", "ray"])
def test_callbacks_in_actors_set_the_task_and_stop_the_run(tmp_path, launcher, launcher_named):
    settings = {"callbacks": "own_callbacks:Commanding", "episode_metrics": ("length",), "max_steps": 1_000_000}
    launcher = launcher_named(launcher, actors=1)
    outcome = run(experiment(tmp_path, **settings, stop_when="episode/length > 100"), launcher, Quiet())
    assert outcome.exit_code == 0 and "enough" in outcome.reason
    assert rows(tmp_path)[-1]["episode/length"] > 3.5
    assert Commanding().setting() == "own_callbacks:Commanding"
