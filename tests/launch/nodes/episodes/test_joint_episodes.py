"""Metrics of episodes with several agents, and ratings against Elo's formula by hand."""

import json

import pytest

from callboard.agents.ppo import Ppo
from callboard.environments.multi_agent.policy_slots import MultiAgentEpisode
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots
from callboard.launch.nodes.episodes.joint_episodes import (
    JointEpisode,
    JointEpisodeMetrics,
    Ratings,
    joint_evaluation_metrics,
)
from callboard.launch.run_directory.layout import RunDirectory

SELF_PLAY = {"main": Ppo(), "past": Snapshots("main", keep=2), "other": RandomPolicy()}


def metrics_of(path, policies=SELF_PLAY):
    return JointEpisodeMetrics(Run(Experiment(Ppo(), "echo_agents:Echo", policies=policies), None, RunDirectory(path)))


def game(mine, theirs, opponent="past@0", length=3):
    return JointEpisode(length, {"left": mine, "right": theirs}, {"left": "main", "right": opponent})


def test_equal_players_exchange_half_of_the_step():
    ratings = Ratings({})
    ratings.add("a", "b", 1.0)
    assert ratings.of == {"a": 1008.0, "b": 992.0}
    # Expected score of a: 1 / (1 + 10 ** (-16 / 400)) = 0.52301
    ratings.add("a", "b", 0.0)
    assert ratings.of["a"] == pytest.approx(1008 - 16 * 0.5230104)
    assert sum(ratings.of.values()) == pytest.approx(2000)


def test_a_favorite_gains_little_and_loses_much():
    ratings = Ratings({})
    ratings.of = {"a": 1400.0, "b": 1000.0}
    ratings.add("a", "b", 1.0)
    assert ratings.of["a"] == pytest.approx(1400 + 16 / 11)
    ratings.of = {"a": 1400.0, "b": 1000.0}
    ratings.add("a", "b", 0.5)
    assert ratings.of["a"] == pytest.approx(1400 + 16 * (0.5 - 10 / 11))


def test_a_policy_does_not_play_against_itself():
    ratings = Ratings({})
    ratings.add("a", "a", 1.0)
    assert ratings.of == {}


def test_a_snapshot_begins_with_the_rating_of_its_policy():
    ratings = Ratings({"past": "main"})
    ratings.of = {"main": 1200.0}
    ratings.add("main", "past@3", 0.5)
    assert ratings.of == {"main": 1200.0, "past@3": 1200.0}


def test_returns_by_policy_and_by_agent(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.add([game(3.0, 1.0), game(5.0, 5.0, "past@1")])
    row = metrics.row()
    assert (row["main/episode_return"], row["agent/left/episode_return"]) == (4, 4)
    assert (row["past/episode_return"], row["agent/right/episode_return"]) == (3, 3)
    assert (row["main/score"], row["past/score"]) == (0.75, 0.25)
    # The second snapshot begins with the rating after the win, and draws.
    assert row["main/rating"] == 1008 and row["past/rating_0"] == 992 and row["past/rating_1"] == 1008


def test_metrics_are_also_given_by_task(tmp_path):
    episode = game(3.0, 1.0)._replace(task={"length": 2})
    ((task, values),) = metrics_of(tmp_path).add([episode])
    assert task == {"length": 2}
    assert values == {
        "main/episode_return": [3.0],
        "agent/left/episode_return": [3.0],
        "past/episode_return": [1.0],
        "agent/right/episode_return": [1.0],
        "main/score": [1.0],
        "past/score": [0.0],
    }


def test_only_the_newest_snapshots_are_shown(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.add([game(1.0, 0.0, f"past@{number}") for number in range(12)])
    assert {name for name in metrics.row() if "rating_" in name} == {"past/rating_10", "past/rating_11"}


def test_ratings_of_old_snapshots_are_forgotten(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.add([game(1.0, 0.0, f"past@{number}") for number in range(1000)])
    metrics.save()
    saved = json.loads(RunDirectory(tmp_path).ratings.read_text())
    assert {"main", "past@999", "past@998"} <= set(saved) and len(saved) < 10


def test_ratings_need_two_agents_and_policies_that_do_not_learn(tmp_path):
    metrics = metrics_of(tmp_path, {"left": Ppo(), "right": Ppo()})
    metrics.add([JointEpisode(3, {"left": 1.0, "right": 2.0}, {"left": "left", "right": "right"})])
    assert not any("rating" in name or "score" in name for name in metrics.row())
    alone = metrics_of(tmp_path)
    alone.add([JointEpisode(3, {"left": 1.0}, {"left": "main"})])
    assert alone.row() == {"agent/left/episode_return": 1.0, "main/episode_return": 1.0}


def test_two_agents_of_one_policy_are_no_game(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.add([game(1.0, 0.0, "main")])
    assert metrics.row()["main/episode_return"] == 0.5
    assert not any("rating" in name or "score" in name for name in metrics.row())


def test_ratings_continue_after_a_restart(tmp_path):
    metrics = metrics_of(tmp_path)
    metrics.save()
    assert not RunDirectory(tmp_path).ratings.exists()
    metrics.add([game(1.0, 0.0)])
    metrics.save()
    assert metrics_of(tmp_path).row() == {"main/rating": 1008, "past/rating_0": 992}


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '{"main": "x"}', '{"past@x": 1}'])
def test_a_damaged_file_begins_anew(tmp_path, content):
    RunDirectory(tmp_path).ratings.write_text(content)
    assert metrics_of(tmp_path).row() == {}


def episode(env, left, right, right_policy="past/1"):
    return MultiAgentEpisode(env, 3, {"left": left, "right": right}, {"left": "main", "right": right_policy})


def test_an_evaluation_counts_the_first_episodes_of_every_environment():
    episodes = [episode(0, 1.0, 2.0), episode(0, 3.0, 3.0), episode(0, 99.0, 99.0), episode(1, 8.0, 1.0, "other")]
    assert joint_evaluation_metrics(episodes, quota=2) == {
        "evaluator/agent/left/return": 4.0,
        "evaluator/agent/right/return": 2.0,
        "evaluator/main/return": 4.0,
        "evaluator/other/return": 1.0,
        "evaluator/past/return": 2.5,
        "evaluator/main/score": 0.5,
        "evaluator/other/score": 0.0,
        "evaluator/past/score": 0.75,
    }


def test_an_evaluation_of_one_agent_has_no_score():
    assert joint_evaluation_metrics([MultiAgentEpisode(0, 3, {"left": 1.0}, {"left": "main"})], 1) == {
        "evaluator/agent/left/return": 1.0,
        "evaluator/main/return": 1.0,
    }
