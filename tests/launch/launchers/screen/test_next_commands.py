"""The commands that are proposed after a run: each is accepted, and raises the limit that was reached alone."""

import dataclasses
import pathlib
import shlex

import gymnasium
import pytest
from recorded_sets import CARTPOLE, cartpole_episode, write
from untrained_runs import write_run

import callboard
from callboard.agents.impala import Impala
from callboard.cli import evaluate, train
from callboard.environments.external.spaces_file import write_spaces
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import write_experiment
from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.launchers.screen.run_summary import next_commands
from callboard.launch.run_directory.layout import RunDirectory

LIMITS = {
    "max_steps": 5000,
    "max_learner_steps": 40,
    "max_seconds": 0.5,
    "stop_return": 50.0,
    "patience": 3,
    "stop_when": ("episodes >= 5", "actor/episode_return > 9"),
}
ENDS = [
    ("reached max_steps (5,000 environment steps)", "--max-steps 10000"),
    ("reached max_learner_steps (40 learner steps)", "--max-learner-steps 80"),
    ("reached max_seconds (3 s, 6,479 environment steps)", "--max-seconds 1"),
    ("the return 51.0, a mean over 100 episodes, has reached 50 within 9 environment steps", "--stop-return null"),
    ("patience is over: the last 3 evaluations were no better than ...", "--patience null"),
    (
        "episodes is 6, and episodes >= 5 was to end the run, within 99 environment steps",
        """--stop-when '["actor/episode_return > 9"]'""",
    ),
    ("stopped by SIGINT", ""),
    ("stopped by its session", ""),
]


class Accepted(Exception):
    """The command would start now."""


@pytest.fixture
def stopped_before_the_start(monkeypatch):
    def stop(*arguments, **options):
        raise Accepted

    monkeypatch.setattr("callboard.cli.train.environments.check", stop)
    monkeypatch.setattr("callboard.launch.launchers.local_launchers.start_forkserver", lambda: None)


def make_run(path, env="CartPole-v1"):
    experiment = Experiment(agent=Impala(), env=env, **LIMITS)
    return Run(experiment, None, RunDirectory(path))


@pytest.mark.parametrize(("reason", "limit"), ENDS)
def test_the_limit_that_was_reached_is_raised_alone(reason, limit, tmp_path, monkeypatch, stopped_before_the_start):
    monkeypatch.chdir(tmp_path)
    run = make_run(pathlib.Path("my runs"))
    (again,) = next_commands(run, "my runs", Outcome(reason=reason), ("--launcher", "threads"))
    assert again == f"callboard train --resume --run-dir 'my runs' --launcher threads {limit}".rstrip()
    run.directory.create()
    write_experiment(run.experiment, run.directory.experiment)
    with pytest.raises(Accepted):
        train.main(shlex.split(again)[2:])


@pytest.mark.slow("daily")
@pytest.mark.parametrize(("steps", "best"), [((3,), False), ((), True), ((), False)])
def test_a_policy_is_evaluated_where_there_is_one(steps, best, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment, directory = write_run(tmp_path / "x", steps=steps, best=best)
    outcome = Outcome(reason="stopped by SIGINT", best_score=0.0 if best else None)
    proposed = next_commands(Run(experiment, None, directory), "x", outcome, ())
    evaluations = [shlex.split(command)[2:] for command in proposed if command.startswith("callboard evaluate")]
    assert len(evaluations) == int(bool(steps) or best)
    for arguments in evaluations:
        assert evaluate.main([*arguments, "--episodes", "1"]) == 0
        assert "mean 7.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "env"), [("CartPole-v1", "CartPole-v1"), ("planted:Environment", "NAME"), (None, "NAME")]
)
def test_a_run_from_recorded_episodes_alone_is_evaluated_in_an_environment_that_is_named(named, env, tmp_path):
    pytest.importorskip("minari")
    metadata = {} if named is None else {"callboard": {"environment": named}}
    dataset = write(tmp_path / "set-v0", CARTPOLE, [cartpole_episode(1, 3)], metadata)
    run = make_run(tmp_path / "x", env=f"recorded:{dataset}")
    (run.directory.checkpoints / "000000000040").mkdir(parents=True)
    evaluation, _ = next_commands(run, "runs/x", Outcome(reason=ENDS[1][0]), ())
    assert evaluation == f"callboard evaluate runs/x --checkpoint latest --env {env}"


def test_the_policy_of_simulators_that_connect_is_served(tmp_path):
    spaces = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3)
    write_spaces(tmp_path / "spaces.json", *spaces)
    directory = RunDirectory(tmp_path / "x")
    experiment = Experiment(agent=Impala(), spaces=str(tmp_path / "spaces.json"), policy_server="127.0.0.1:8650")
    (directory.checkpoints / "000000000040").mkdir(parents=True)
    policy, _ = next_commands(Run(experiment, None, directory), "my runs", Outcome(reason="stopped by SIGINT"), ())
    assert policy == "callboard serve 'my runs@latest'"


def test_a_run_whose_environment_only_the_script_has_is_continued_by_the_script(tmp_path):
    class Own:
        pass

    Own.__module__, Own.__qualname__ = "__main__", "Own"
    run = make_run(tmp_path / "x", env=Own)
    run.directory.create()
    (run.directory.checkpoints / "000000000040").mkdir(parents=True)
    policy, again = next_commands(run, "runs/x", Outcome(reason=ENDS[0][0]), ("--launcher", "threads"))
    assert policy == "callboard.load_policy('runs/x@latest')"
    called = []
    names = {"callboard": callboard, "dataclasses": dataclasses, "experiment": run.experiment}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callboard, "run", lambda *arguments, **named: called.append((arguments, named)), raising=False)
        eval(again, names)
    (((resumed, launcher), named),) = called
    assert (launcher, named) == ("threads", {"resume": True})
    assert resumed.max_steps == 10_000 and str(resumed.run_dir) == "runs/x"
