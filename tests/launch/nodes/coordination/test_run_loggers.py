"""The loggers that a run's settings name."""

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.coordinator import RunLoggers
from callboard.launch.run_directory.layout import RunDirectory

OWN = """
import json, pathlib
from callboard.launch.loggers.metric_logger import MetricLogger

class Appends(MetricLogger):
    def start(self, run):
        self.path = run.directory / "own.jsonl"
        self.path.write_text(json.dumps(run.settings["env"]) + "\\n")

    def write(self, row):
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\\n")
"""


def test_each_gets_all_rows_and_the_settings(tmp_path, monkeypatch):
    (tmp_path / "appends.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    experiment = Experiment(agent=Impala(), env="CartPole-v1", loggers="appends:Appends")
    said = []
    loggers = RunLoggers(Run(experiment, None, RunDirectory(tmp_path)), said.append)
    loggers.write({"environment_steps": 5})
    loggers.close()
    assert (tmp_path / "own.jsonl").read_text().splitlines() == ['"CartPole-v1"', '{"environment_steps": 5}']
    assert said == []


def test_a_run_without_loggers_has_no_threads(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    loggers = RunLoggers(Run(experiment, None, RunDirectory(tmp_path)), lambda text: None)
    loggers.write({"environment_steps": 5})
    loggers.close()
    assert loggers._threads == [] and list(tmp_path.iterdir()) == []
