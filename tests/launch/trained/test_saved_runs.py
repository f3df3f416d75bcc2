"""`evaluate`, `export` and `compare` in Python: the same results as those of the commands."""

import json
import sys

import gymnasium
import pytest
import synthetic_runs
from untrained_runs import SMALL, write_run

import callboard
from callboard.cli.command import main
from callboard.errors import CallboardError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run"
    write_run(path, "ppo", steps=(5,))
    return path


@pytest.mark.slow("daily")
def test_evaluate_returns_what_the_command_prints(run, capsys):
    result = callboard.evaluate(run, 4, mode="sampled", seed=7)
    arguments = ("--episodes=4", "--mode=sampled", "--seed=7", "--json")
    assert main(["evaluate", str(run), *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert result.returns == printed["returns"] and len(result.returns) == 4
    assert (result.mean, result.std) == (printed["mean"], printed["std"])


def make_cartpole(steps=3):
    return gymnasium.make("CartPole-v1", max_episode_steps=steps)


@pytest.mark.slow("daily")
def test_evaluate_takes_another_environment_or_other_options(run):
    assert callboard.evaluate(run, 2).lengths == [7, 7]
    assert callboard.evaluate(f"{run}@5", 2, env_options={"max_episode_steps": 4}).lengths == [4, 4]
    assert callboard.evaluate(run, 2, env=make_cartpole).lengths == [3, 3]
    assert callboard.evaluate(run, 2, env=lambda: make_cartpole(2)).lengths == [2, 2]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"episodes": 0}, "episodes must be a whole number of at least 1, not 0"),
        ({"env_options": [1]}, "env_options must be options by name, not a list"),
        ({"env": "Acrobot-v1"}, "the policy cannot act in this environment"),
        ({"epsilon": 0.1}, "takes no epsilon"),
    ],
)
def test_mistakes_are_one_line(run, arguments, message):
    with pytest.raises(CallboardError) as caught:
        callboard.evaluate(run, **arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow("daily")
def test_an_export_is_a_policy_that_acts_alike(run, tmp_path):
    exported = callboard.export(f"{run}@latest", tmp_path / "policy")
    assert exported.policy.parent.name == "000000000005"
    observation = [0.0, 0.1, 0.0, -0.1]
    acting, saved = callboard.load_policy(tmp_path / "policy"), callboard.load_policy(f"{run}@latest")
    assert acting(observation)[0] == saved(observation)[0]


def test_compare_returns_scores_of_groups(tmp_path):
    for seed in (1, 2):
        synthetic_runs.write_run(tmp_path / f"run{seed}", [(100, 10.0), (200, 20.0)], seed=seed)
    comparison = callboard.compare(tmp_path, goal=15)
    assert [(group.mean, len(group.reached)) for group in comparison.groups] == [(20.0, 2)]
    with pytest.raises(CallboardError, match="unknown argument 'gaol'; did you mean 'goal'"):
        callboard.compare(tmp_path, gaol=15)


class OfProgram(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(make_cartpole())


@pytest.mark.slow("daily")
def test_a_run_whose_environment_only_its_program_has(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    _, directory = write_run(path, "ppo", ("--env=CartPole-v1", *SMALL))
    text = directory.experiment.read_text().replace("CartPole-v1", "__main__:Own")
    directory.experiment.write_text(text)
    assert main(["export", str(path), str(tmp_path / "policy")]) == 0
    assert main(["evaluate", str(path)]) == 2
    assert "'__main__:Own' is defined in the program that started the run, which commands" in capsys.readouterr().err
    monkeypatch.setattr(sys.modules["__main__"], "Own", OfProgram, raising=False)
    assert callboard.evaluate(path, 2).lengths == [3, 3]
