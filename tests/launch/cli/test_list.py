"""`callboard list`: the names that other commands take."""

import json

from callboard.launch.cli.command import main


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
