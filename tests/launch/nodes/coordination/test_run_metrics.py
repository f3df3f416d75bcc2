"""Metrics of a run: means over episodes, the generalization gap, and counts of several policies."""

import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.counters import Counters
from callboard.launch.nodes.coordination.run_metrics import RunMetrics
from callboard.launch.nodes.episodes.joint_episodes import JointEpisode
from callboard.launch.run_directory.layout import RunDirectory


def metrics_of(path, counts=None, clock=lambda: 5.0, policies=(), **settings):
    counters = Counters({"actor/0#a": counts or {}})
    run = Run(Experiment(Impala(), **settings), None, RunDirectory(path), policies=dict.fromkeys(policies))
    return RunMetrics(run, counters, clock)


def test_a_row_has_counters_means_of_episodes_and_the_newest_values(tmp_path):
    now = [5.0]
    metrics = metrics_of(tmp_path, {"environment_steps": 30, "episodes": 2}, lambda: now[0], env="CartPole-v1")
    assert "actor/episode_return" not in metrics.row()
    metrics.add({"b/value": 1.0, "a/value": 2.0}, [[10.0, 20], [40.0, 10]])
    metrics.add({"b/value": 3.0}, [])
    now[0] = 7.0
    row = metrics.row()
    assert row["environment_steps"] == 30 and row["learner_steps"] == 0 and row["episodes"] == 2
    assert row["elapsed_seconds"] == 2.0
    assert (row["actor/episode_return"], row["actor/episode_length"]) == (25.0, 15.0)
    assert list(row)[-2:] == ["a/value", "b/value"] and row["b/value"] == 3.0


@pytest.mark.parametrize("mode, gap", [("sampled", 3.0), ("greedy", None)])
def test_the_gap_between_known_and_unseen_levels_is_one_of_episodes_played_alike(tmp_path, mode, gap):
    settings = {"env": "procgen:coinrun", "env_options": {"num_levels": 10}, "evaluation_mode": mode}
    metrics = metrics_of(tmp_path, **settings)
    assert metrics.evaluation == {}
    metrics.add({}, [[8.0, 5], [6.0, 5]])
    metrics.add_evaluation({"evaluator/return": 4.0})
    assert metrics.evaluation["evaluator/return"] == 4.0
    assert metrics.evaluation.get("evaluator/generalization_gap") == gap


def test_each_policy_has_steps_and_returns_of_its_own(tmp_path):
    counts = {"red/learner_steps": 4, "red/agent_steps": 50, "blue/agent_steps": 60}
    metrics = metrics_of(tmp_path, counts, policies=("red", "blue"), env="echo_agents:Echo")
    episode = JointEpisode(3, {"left": 1.0, "right": 2.0}, {"left": "red", "right": "blue"}, {"size": 5})
    (reported,) = metrics.add_joint_episodes([list(episode)])
    assert reported.task == {"size": 5} and reported.values["red/episode_return"] == [1.0]
    row = metrics.row()
    assert (row["red/learner_steps"], row["blue/learner_steps"], row["blue/agent_steps"]) == (4, 0, 60)
    assert (row["red/episode_return"], row["blue/episode_return"]) == (1.0, 2.0)
    metrics.save_ratings()
