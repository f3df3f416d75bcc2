"""`callboard list`: the names that other commands take."""

import json

from callboard.cli.command import main


def test_lists(capsys):
    assert main(["list", "agents", "--json"]) == 0
    assert "impala" in json.loads(capsys.readouterr().out)
    assert main(["list", "environments"]) == 0
    names = {"CartPole-v1", "ALE/Breakout-v5", "MinAtar/Breakout-v1", "procgen:coinrun"}
    assert names <= set(capsys.readouterr().out.splitlines())
    assert main(["list", "recipes"]) == 0
    assert "impala-cartpole" in capsys.readouterr().out.splitlines()


def test_the_default_launcher_is_listed_and_an_unknown_kind_is_refused(capsys):
    assert main(["list", "launchers"]) == 0
    assert {"inline", "processes", "ray"} <= set(capsys.readouterr().out.splitlines())
    assert main(["list", "agent"]) == 2
    assert "did you mean 'agents'?" in capsys.readouterr().err


def test_a_recipe_or_a_study_is_printed(capsys):
    assert main(["list", "recipes", "ppo-cartpole"]) == 0
    assert "\nenv: CartPole-v1\n" in capsys.readouterr().out
    assert main(["list", "studies", "ppo-pong"]) == 0
    assert "\nagents:" in capsys.readouterr().out
    assert main(["list", "recipes", "ppo-pong"]) == 2
    assert "there is a study of that name: callboard study ppo-pong" in capsys.readouterr().err
    assert main(["list", "agents", "ppo"]) == 2
    assert "names of agents stand for no files: leave 'ppo' out" in capsys.readouterr().err
