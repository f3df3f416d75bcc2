"""Runs of environments with several agents: policies with agents and settings of their own."""

import json

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.policy_settings import RandomPolicy, Snapshots
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


def test_two_agents_learn_with_algorithms_and_spaces_of_their_own(tmp_path):
    apex = {"name": "apex", "replay": {"min_size": 50}, "batch_size": 16}
    run(echo(tmp_path / "run", policies={"left": {}, "right": apex}), "inline")
    row = last_row(tmp_path / "run")
    assert (
        row["environment_steps"] == 400
        and row["left/learner_steps"] + row["right/learner_steps"] == row["learner_steps"]
    )
    assert row["left/learner/step"] > 0 and row["right/learner/step"] > 0
    rows = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert all(f'"{name}"' in rows for name in ("agent/left/episode_return", "evaluator/left/return"))


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "policy 'shared' cannot play for both 'left' and 'right'"),
        ({"policies": {"left": {}}, "mapping": {"left": "left"}}, "agent 'right' has no policy"),
        ({"policies": {"left": {}, "right": {}, "third": {}}}, "'third'"),
        ({"policies": {"left": {}, "right": {}}, "mapping": {"*": "lfet"}}, "did you mean 'left'?"),
        ({"policies": {"left": {}, "right": {"name": "ppp"}}}, "did you mean 'ppo'?"),
        ({"policies": {"left": {}, "right": {"name": "random", "seed": 1}}}, "a random policy has no settings"),
        ({"policies": {"left": {}, "right": RandomPolicy()}, "train": "left,right"}, "is frozen and cannot learn"),
        ({"policies": {"left": {}, "right": {}}, "train": "left"}, "is not in train"),
        ({"policies": {"left": {}, "right": Snapshots("lft")}}, "snapshots of 'lft', which does not learn"),
        ({"policies": {"learner": {}}}, "cannot name a policy"),
    ],
)
def test_policies_that_do_not_fit_are_refused(tmp_path, settings, message):
    with pytest.raises(CallboardError, match=message.replace("?", r"\?")):
        echo(tmp_path / "run", **settings).check()


def test_a_saved_policy_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CallboardError, match="there is no run in nowhere"):
        run(echo(tmp_path / "run", policies={"left": {}, "right": {"weights": "nowhere"}}), "inline")
    assert not (tmp_path / "run").exists()


def test_settings_for_several_agents_need_an_environment_with_several():
    with pytest.raises(CallboardError, match="is for environments with several agents, and CartPole-v1 has one"):
        Experiment(Apex(), "CartPole-v1", policies={"left": {}}).check()
