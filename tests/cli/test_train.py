"""`callboard train`: mistakes are one line and start nothing, and what the help lists."""

import pytest

from callboard.cli.command import main


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "impala", "--env", "CartPol-v1"], "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (
            ["train", "impala", "--env", "CartPole-v1", "--max-stps", "5"],
            "unknown option '--max-stps'; did you mean '--max-steps'?",
        ),
        (["train", "impal", "--env", "CartPole-v1"], "unknown agent 'impal'; did you mean 'impala'?"),
        (["train", "d4pg", "--env", "CartPole-v1"], "needs one action of floats"),
        (
            ["train", "apex", "--env", "Pendulum-v1"],
            "apex compares the values of actions and needs one",
        ),
        (["train", "r2d2", "--env", "Pendulum-v1"], "needs one discrete action"),
        (["train", "td3", "--env", "CartPole-v1"], "td3 has a deterministic policy and needs one action of floats"),
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
        (["train", "--resume"], "--resume needs the run's directory: --run-dir runs/..."),
        (["train", "--resume", "runs/x"], "--resume needs the run's directory: --run-dir runs/x"),
        (["train", "ppo", "CartPole-v1"], "'CartPole-v1' is no option: options begin with --, as in --env CartPole-v1"),
        (["train", "impala", "--env", "CartPole-v1", "--launcher", "thread"], "unknown launcher 'thread'"),
        (
            ["train", "--recipe", "impala-cartpole", "--learners", "2", "--launcher", "inline"],
            "needs its own; set learners",
        ),
        (["train", "--recipe", "impala-cartpole", "--learner-devices", "4"], "this machine has 0 GPU(s): set a number"),
        (["train", "--recipe", "impala-cartpole", "--replay-shards", "3"], "set replay_shards to at most 2"),
        (["train", "--recipe", "apex-cartpole", "--replay-shards", "2", "--launcher", "inline"], "one replay server"),
        (["train"], "name an agent"),
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


def test_help_names_the_fields_of_agent_and_run(capsys):
    assert main(["train", "impala", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--agent.unroll-length" in text and "--max-steps" in text and "--launcher" in text


@pytest.mark.parametrize(
    "options, message",
    [
        (["--private-network", "--launcher", "ray"], "the nodes of --launcher ray must be reachable from others"),
        (["--add-nodes", "no_module:add", "--launcher", "inline"], "function 'no_module:add' cannot be imported"),
    ],
)
def test_options_that_cannot_work_are_refused_before_a_run_directory_is_made(
    options, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--recipe", "impala-cartpole", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
