"""Runs of environments with several agents: policies with agents and settings of their own."""

import json

import imageio.v3 as imageio
import numpy as np
import pytest
from own_callbacks import Recorder

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.curriculum import Stage
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.run import run


def echo(path, **settings):
    defaults = {
        "env": "echo_agents:Echo",
        "actors": 1,
        "envs_per_actor": 4,
        "max_steps": 400,
        "evaluate_every": 200,
        "evaluation_episodes": 4,
        "evaluation_envs": 2,
        "run_dir": path,
    }
    return Experiment(Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1), **{**defaults, **settings})


def last_row(path):
    return json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.slow("daily")
def test_two_agents_learn_with_algorithms_and_spaces_of_their_own(tmp_path):
    apex = {"name": "apex", "replay": {"min_size": 50}, "batch_size": 16}
    # Ape-X has made them long before PPO, and then plays without learning.
    run(echo(tmp_path / "run", policies={"left": {}, "right": apex}, max_learner_steps=5, max_steps=4000), "inline")
    row = last_row(tmp_path / "run")
    assert row["left/learner/step"] == row["right/learner/step"] == 5 and row["learner_steps"] == 10
    assert row["environment_steps"] < 400
    rows = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert all(f'"{name}"' in rows for name in ("agent/left/episode_return", "evaluator/left/return"))


@pytest.mark.slow
def test_a_policy_plays_against_snapshots_of_itself(tmp_path):
    policies = {"main": {}, "past": Snapshots("main", every=500, keep=2), "other": RandomPolicy()}
    mapping = {"left": "main", "right": {"main": 1, "past": 1, "other": 1}}
    run(
        echo(tmp_path / "run", env_options={"alike": True}, policies=policies, mapping=mapping, max_steps=1200),
        "inline",
    )
    row = last_row(tmp_path / "run")
    assert {name for name in row if "rating" in name} >= {"main/rating", "other/rating"}
    kept = sorted(path.name for path in (tmp_path / "run" / "policies" / "main" / "snapshots").iterdir())
    assert len(kept) == 2


@pytest.mark.slow
def test_agents_with_different_spaces_share_a_policy_with_two_heads(tmp_path):
    policies = {"both": {"network": {"heads_by": "agent_index"}}}
    run(echo(tmp_path / "run", policies=policies, agent_padding=True, agent_index=True), "inline")
    row = last_row(tmp_path / "run")
    assert row["both/learner/step"] > 0 and row["both/agent_steps"] > 400
    assert {"agent/left/episode_return", "agent/right/episode_return"} <= set(row)


@pytest.mark.slow
def test_hooks_curriculum_and_videos_see_the_whole_scene(tmp_path, capsys):
    recorder = Recorder(factor=3)
    settings = {
        "env": "echo_agents:Taught",
        "policies": {"left": {}, "right": RandomPolicy()},
        "callbacks": recorder,
        "episode_metrics": ("steps", "right/steps"),
        "curriculum": (Stage({"length": 4}), Stage({"length": 6}, when="left/episode_return >= 0", episodes=10)),
        "evaluation_task": {"length": 5},
        "max_steps": 2000,
        "evaluate_every": 1000,
    }
    assert run(echo(tmp_path / "run", **settings), "inline").exit_code == 0
    row = last_row(tmp_path / "run")
    assert row["curriculum/stage"] == 2
    assert row["episode/steps"] == row["episode/right/steps"] == row["actor/episode_length"] == 6
    assert row["episode/twice"] == 18
    of = {kind: [call for call in recorder.calls if call[0] == kind] for kind in ("start", "step", "end", "evaluation")}
    assert {call[1] for call in of["start"]} == {0, 1, 2, 3}
    assert of["start"][0][2] == {"length": 4} and of["start"][-1][2] == {"length": 6}
    assert {call[2] for call in of["end"]} == {4, 6}
    _, _, action, info, timestep = of["step"][0]
    assert set(action) == set(timestep.observation) == {"left", "right"}
    assert info["left/steps"] == info["right/steps"] == info["steps"] == 1
    assert {call[3] for call in of["end"]} <= set(range(7)), "the rewards of the policy that learns"
    assert [call[3] for call in of["evaluation"]] == [{"length": 5}] * 2

    evaluate = ["evaluate", str(tmp_path / "run"), "--episodes", "2", "--video", "--json"]
    capsys.readouterr()
    assert main(evaluate) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mean_length"] == 5 and set(result["by_policy"]) >= {"left/return", "right/return"}
    frames = imageio.imread(tmp_path / "run" / "videos" / "best.mp4", plugin="pyav")
    assert frames.shape == (6, 64, 64, 3), "a picture of the scene at the start and after every step"
    assert np.allclose(frames.mean(axis=(1, 2, 3)), 25 * np.arange(6), atol=6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "policy 'shared' cannot play for both 'left' and 'right'"),
        ({"policies": {"left": {}}, "mapping": {"left": "left"}}, "agent 'right' has no policy"),
        ({"policies": {"left": {}, "right": {}, "third": {}}}, "'third'"),
        ({"policies": {"left": {}, "right": {}}, "mapping": {"*": "lfet"}}, "did you mean 'left'?"),
        ({"policies": {"left": {}, "right": {"name": "ppp"}}}, "did you mean 'ppo'?"),
        ({"policies": {"left": {}, "right": {"name": "random", "seed": 1}}}, "a random policy has no settings"),
        ({"policies": {"left": {}, "right": RandomPolicy()}, "train": "left,right"}, "is fixed and cannot learn"),
        ({"policies": {"left": {}, "right": {}}, "train": "left"}, "is not in train"),
        ({"policies": {"left": {}, "right": Snapshots("lft")}}, "snapshots of 'lft', which does not learn"),
        ({"policies": {"learner": {}}}, "cannot name a policy"),
    ],
)
def test_policies_that_do_not_fit_are_refused(tmp_path, settings, message):
    with pytest.raises(CallboardError, match=message.replace("?", r"\?")):
        check_experiment(echo(tmp_path / "run", **settings))


def test_a_saved_policy_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CallboardError, match="there is no run in /.*/nowhere to take weights from"):
        run(echo(tmp_path / "run", policies={"left": {}, "right": {"weights": "nowhere"}}), "inline")
    assert not (tmp_path / "run").exists()


def test_settings_for_several_agents_need_an_environment_with_several():
    with pytest.raises(CallboardError, match="is for environments with several agents, and CartPole-v1 has one"):
        check_experiment(Experiment(Apex(), "CartPole-v1", policies={"left": {}}))
