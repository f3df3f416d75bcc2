"""`callboard check`: what it prints, and mistakes in one line."""

import json

import pytest

from callboard.cli.command import main


@pytest.mark.slow("daily")
def test_an_environment_is_described(capsys, tmp_path):
    picture = tmp_path / "cart.png"
    options = ["--seconds", "0.2", "--env-options.max_episode_steps", "5", "--picture", str(picture)]
    assert main(["check", "CartPole-v1", *options]) == 0
    text = capsys.readouterr().out
    assert "action       2 choices" in text and "options      max_episode_steps 5, " in text
    assert "same seed    gives the same" in text
    assert "of 5.0 steps" in text and "nothing wrong was found" in text and picture.exists()


@pytest.mark.slow("daily")
def test_warnings_come_after_the_report(capsys):
    assert main(["check", "faulty_environments:Faulty", "--env-options.fault", "outside", "--seconds", "0.1"]) == 0
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("warning: environment 'faulty_environments:Faulty' gives 7 in its observation")


@pytest.mark.slow("daily")
def test_json(capsys):
    assert main(["check", "CartPole-v1", "--seconds", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["warnings"] == [] and found["environments"][0]["deterministic"] is True


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["CartPol-v1"], "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ([], "callboard check needs the name of an environment, as --env of `callboard train` takes it"),
        (["CartPole-v1", "--seconds", "0"], "--seconds and --timeout must be positive"),
        (["CartPole-v1", "--picture", "x.jpg"], "--picture writes PNG: name a file that ends in .png, not x.jpg"),
        (
            ["faulty_environments:Faulty", "--env-options.fault", "hang@step", "--timeout", "0.5"],
            "'step' has not returned",
        ),
        (["faulty_environments:Faulty", "--env-options.fault", "nan"], "the observation contains nan, no number"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, message, capsys):
    assert main(["check", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
