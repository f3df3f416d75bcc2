"""The command: one line for every mistake, and what the small commands print."""

import json
import pathlib

import imageio.v3 as imageio
import pytest

from callboard.launch.cli.command import main


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "impala", "--env", "CartPol-v1"], "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (
            ["train", "impala", "--env", "CartPole-v1", "--max-stps", "5"],
            "unknown option '--max-stps'; did you mean '--max-steps'?",
        ),
        (["train", "impal", "--env", "CartPole-v1"], "unknown agent 'impal'; did you mean 'impala'?"),
        (["train", "impala", "--env", "Pendulum-v1"], "needs one discrete action"),
        (
            ["train", "apex", "--env", "Pendulum-v1"],
            "apex compares the values of actions and needs one",
        ),
        (["train", "r2d2", "--env", "Pendulum-v1"], "needs one discrete action"),
        (["train", "sac", "--env", "CartPole-v1"], "sac has a Gaussian policy and needs one action of floats"),
        (
            ["train", "sac", "--env", "Pendulum-v1", "--agent.network.torso", "resnet8"],
            "set agent.network.torso to impala or nature",
        ),
        (
            ["train", "--recipe", "impala-cartpole", "--agent.network.torso", "ml"],
            "unknown torso 'ml'; did you mean 'mlp'?",
        ),
        (["train", "--recipe", "apex-cartpole", "--agent.network.torso", "nature"], "'nature' is for images"),
        (["train", "--recipe", "r2d2-cartpole-masked", "--agent.network.torso", "x"], "unknown torso 'x'"),
        (["train", "--recipe", "ppo-cartpole", "--agent.network.torso", "impala-x0"], "unknown torso 'impala-x0'"),
        (["train", "--recipe", "sac-pendulum", "--agent.network.torso", "impala"], "'impala' is for images"),
        (["train", "--recipe", "apex-cartpole", "--agent.replay.size", "10"], "is smaller than a batch of 128"),
        (
            ["train", "--recipe", "sac-pendulum", "--agent.replay.error-buffer", "1"],
            "cannot keep 256 samples per insert",
        ),
        (["train", "ppo", "--env", "procgen:coinrum"], "did you mean 'procgen:coinrun'?"),
        (["train", "--recipe", "impala-cartpol"], "did you mean 'impala-cartpole'?"),
        (["train", "--recipe", "typo.yaml"], "unknown key 'max_stps'; did you mean 'max_steps'?"),
        (["train", "--resume", "--run-dir", "nowhere"], "there is no run in nowhere"),
        (["train", "--resume"], "--resume needs the run's directory"),
        (["train", "impala", "--env", "CartPole-v1", "--launcher", "thread"], "unknown launcher 'thread'"),
        (
            ["train", "--recipe", "impala-cartpole", "--learners", "2", "--launcher", "inline"],
            "needs its own; set learners",
        ),
        (["train", "--recipe", "impala-cartpole", "--learner-devices", "4"], "this machine has 0 GPU(s): set a number"),
        (["train", "--recipe", "impala-cartpole", "--replay-shards", "2"], "reads from one queue"),
        (["train", "--recipe", "impala-cartpole", "--replay-shards", "3"], "set replay_shards to at most 2"),
        (["train", "--recipe", "apex-cartpole", "--replay-shards", "2", "--launcher", "inline"], "one replay server"),
        (["train"], "name an agent"),
        (["evaluate", "nowhere"], "there is no run in nowhere"),
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typo.yaml").write_text("agent: {name: impala}\nenv: CartPole-v1\nmax_stps: 5\n")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("callboard: ") and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["typo.yaml"]


def test_graph_shows_who_calls_whom(capsys):
    assert main(["graph", "impala", "--env", "CartPole-v1", "--actors", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "actor x 8  ->  coordinator, learner, replay" in lines
    assert "learner x 1  ->  coordinator, replay" in lines


def test_lists(capsys):
    assert main(["list", "agents", "--json"]) == 0
    assert "impala" in json.loads(capsys.readouterr().out)
    assert main(["list", "environments"]) == 0
    names = {"CartPole-v1", "ALE/Breakout-v5", "MinAtar/Breakout-v1", "procgen:coinrun"}
    assert names <= set(capsys.readouterr().out.splitlines())
    assert main(["list", "recipes"]) == 0
    assert "impala-cartpole" in capsys.readouterr().out.splitlines()


def test_doctor_finds_this_installation_healthy(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["tensorflow"]["found"] == "2.12.0"
    assert findings["TensorFlow, Reverb and Launchpad load together"]["ok"]


def test_help_names_the_fields_of_agent_and_run(capsys):
    assert main(["train", "impala", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--agent.unroll-length" in text and "--max-steps" in text and "--launcher" in text


def test_evaluate_prints_scores_and_records_a_video_that_plays(tmp_path, capsys):
    path = str(tmp_path / "run")
    settings = ["--launcher", "inline", "--max-steps", "1000", "--evaluator", "false", "--stop-return", "null"]
    assert main(["train", "--recipe", "impala-cartpole", "--run-dir", path, *settings]) == 0
    capsys.readouterr()
    video = ["--video", "--video-episodes", "3"]
    assert main(["evaluate", path, "--episodes", "7", "--checkpoint", "latest", "--json", *video]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["returns"]) == result["episodes"] == 7
    assert result["min"] <= result["mean"] <= result["max"]
    frames = imageio.imread(result["video"], plugin="pyav")
    assert frames.shape[1:] == (400, 600, 3)
    # CartPole's return is its number of steps; the video shows the first observations too.
    assert len(result["video_returns"]) == 3
    assert len(frames) == sum(result["video_returns"]) + 3
    assert imageio.immeta(result["video"], plugin="pyav")["fps"] == 50.0
    assert frames.std() > 1.0
    assert list(pathlib.Path(path, "videos").iterdir()) == [pathlib.Path(result["video"])]

    def returns(*options):
        assert main(["evaluate", path, "--episodes", "7", "--checkpoint", "latest", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["returns"]

    assert returns() == result["returns"]
    assert returns("--seed", "5") != result["returns"]
    assert returns("--mode", "sampled") != result["returns"]
    (step,) = {int(file.name.partition(".")[0]) for file in pathlib.Path(path, "checkpoints").glob("0*")}
    assert returns("--checkpoint", str(step)) == result["returns"]
    assert set(returns("--env-options.max_episode_steps", "5")) == {5.0}
    assert main(["evaluate", path, "--checkpoint", str(step + 1)]) == 2
    assert f"has no checkpoint {step + 1}; choose from latest, {step}" in capsys.readouterr().err
    assert main(["evaluate", path, "--epsilon", "0.1"]) == 2
    assert "Impala takes no epsilon" in capsys.readouterr().err
    assert main(["evaluate", path]) == 2
    assert "has no checkpoint best; choose from latest, " in capsys.readouterr().err
