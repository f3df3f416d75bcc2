"""What a user reads at the beginning and at the end of a run."""

import pathlib
import types

import numpy as np
import pytest
from dm_env import specs
from untrained_runs import write_run

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.launchers.screen.run_summary import SummaryMonitor, describe_end
from callboard.launch.run_directory.layout import RunDirectory
from callboard.specs import EnvironmentSpec


class Screen:
    def __init__(self):
        self.said, self.statuses = [], []

    def notify(self, text):
        self.said.append(text)

    def status(self, status):
        self.statuses.append(status)


LAYOUT = types.SimpleNamespace(spec=EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3)))


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def make_summary(screen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(path=tmp_path / "runs" / "x", url="", options=(), **settings):
        experiment = Experiment(agent=Impala(), env="CartPole-v1", max_steps=5000, **settings)
        return SummaryMonitor(Run(experiment, LAYOUT, RunDirectory(path, url=url)), screen, options)

    return make


def test_agent_environment_and_directory_are_shown_once_at_the_beginning(make_summary, screen):
    summary = make_summary()
    for steps in (0, 100):
        summary.status({"environment_steps": steps})
    assert screen.said == ["impala on CartPole-v1 for 5,000 environment steps, run directory runs/x"]
    assert len(screen.statuses) == 2


def test_the_outcome_has_the_last_scores_even_where_the_last_status_has_none(make_summary):
    summary = make_summary()
    summary.status({"evaluator/return": 10.0, "evaluator/return_std": 1.0, "actor/episode_return": 5.0})
    summary.status({"evaluator/return": 20.0, "evaluator/return_std": 2.0})
    summary.status({"environment_steps": 5000})
    outcome = summary.complete(Outcome(reason="reached max_steps (5,000 environment steps)"))
    assert (outcome.score, outcome.score_std, outcome.training_return) == (20.0, 2.0, 5.0)
    assert outcome.run_directory == "runs/x"
    assert describe_end(outcome, 100) == (
        "The run is over: reached max_steps (5,000 environment steps). Score: 20.0 ± 2.0 over 100 episodes. "
        "Run directory: runs/x\nNext:\n  callboard evaluate runs/x\n"
        "  callboard train --resume --run-dir runs/x --max-steps 10000"
    )


def test_the_best_evaluation_is_named_where_it_is_not_the_last_one(make_summary, tmp_path):
    summary = make_summary(tmp_path / "my runs", options=("--launcher", "threads"), stop_return=50.0)
    for score in (30.0, 20.0):
        summary.status({"evaluator/return": score, "evaluator/return_std": 2.0})
    interrupted = summary.complete(Outcome(reason="stopped by SIGINT", exit_code=130))
    assert interrupted.best_score == 30.0
    assert describe_end(interrupted, 100).endswith(
        "Score: 20.0 ± 2.0 over 100 episodes. Best evaluation: 30.0; its policy is kept as the checkpoint `best`. "
        "Run directory: my runs\nNext:\n  callboard evaluate 'my runs' --checkpoint best\n"
        "  callboard train --resume --run-dir 'my runs' --launcher threads"
    )


def test_the_best_evaluation_may_have_been_before_the_run_was_resumed(make_summary, tmp_path):
    _, directory = write_run(tmp_path / "runs" / "x")  # With a best policy of 0.
    summary = make_summary(directory.path)
    summary.status({"evaluator/return": -20.0, "evaluator/return_std": 2.0})
    assert summary.complete(Outcome(reason="over")).best_score == 0.0


def test_a_run_without_evaluations_ends_with_its_training_return(make_summary):
    summary = make_summary()
    summary.status({"actor/episode_return": 5.0})
    outcome = summary.complete(Outcome(reason="stopped by SIGINT", exit_code=130))
    assert outcome.score is None
    assert "Not evaluated; mean return of the last training episodes: 5.0. Run" in describe_end(outcome, 100)


def test_a_run_elsewhere_is_named_in_full(make_summary):
    far = make_summary(pathlib.Path("/far/away")).complete(Outcome(reason="over"))
    assert describe_end(far, 100) == (
        "The run is over: over. Run directory: /far/away\nNext:\n  callboard train --resume --run-dir /far/away"
    )
    assert make_summary(url="s3://bucket/x").complete(Outcome()).run_directory == "s3://bucket/x"


@pytest.mark.parametrize(
    "counts, message",
    [
        ({"learner_steps": 0, "replay/inserted_0": 600}, "nothing was learned: the run was too short for a batch"),
        ({"learner_steps": 0, "replay/inserted_0": 0}, "nothing was learned: nothing was written to replay"),
        ({"learner_steps": 1, "replay/inserted_0": 600}, ""),
        ({}, ""),
    ],
)
def test_a_run_without_a_learner_step_says_that_nothing_was_learned(make_summary, screen, counts, message):
    summary = make_summary()
    summary.status({"environment_steps": 600, **counts})
    summary.complete(Outcome(reason="reached max_steps (600 environment steps)"))
    assert (message in screen.said[-1]) if message else len(screen.said) == 1
    summary.complete(Outcome(exit_code=1, failed_node="actor/0"))
    assert len(screen.said) == (2 if message else 1)


def test_conditions_on_metrics_that_never_were_are_named(make_summary, screen):
    stages = ({"task": 1}, {"task": 2, "when": "learner/distance_to_goal >= 1"})
    summary = make_summary(stop_when=("learner/los < 1", "learner/loss < 1"), curriculum=stages)
    summary.status({"learner_steps": 2, "learner/step": 2})
    summary.complete(Outcome(reason="stopped by SIGINT", exit_code=130))
    assert len(screen.said) == 1
    summary.status({"learner_steps": 3, "learner/loss": 2.0})
    summary.complete(Outcome(reason="reached max_steps (5,000 environment steps)"))
    assert screen.said[-2:] == [
        "stop_when 'learner/los < 1' never held: the run had no value of learner/los; did you mean 'learner/loss'?",
        "curriculum: when 'learner/distance_to_goal >= 1' never held: the run had no value of learner/distance_to_goal",
    ]
    summary.status({"learner/los": 2.0, "learner/distance_to_goal": 0.0})
    summary.complete(Outcome(reason="over"))
    assert len(screen.said) == 3


def test_a_run_whose_learner_died_and_made_no_step_has_failed(make_summary):
    for limit in ("reached max_steps (5,000 environment steps)", "reached max_seconds"):
        summary = make_summary()
        summary.status({"environment_steps": 5000, "learner_steps": 0, "replay/inserted_0": 600})
        outcome = Outcome(reason=limit, restarted={"actor/0": "killed", "learner/0": "ValueError: no"})
        ended = summary.complete(outcome)
        assert (ended.exit_code, ended.failed_node, ended.error) == (1, "learner/0", "ValueError: no")


def test_a_run_whose_learner_died_and_made_steps_has_not_failed(make_summary):
    summary = make_summary()
    summary.status({"environment_steps": 5000, "learner_steps": 7, "replay/inserted_0": 600})
    ended = summary.complete(Outcome(reason="reached max_seconds", restarted={"learner/0": "ValueError: no"}))
    assert ended.exit_code == 0 and ended.failed_node is None
