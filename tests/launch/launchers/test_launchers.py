"""Every launcher, from end to end, with real Reverb and real Courier; and what each leaves behind: nothing."""

import json
import signal

import numpy as np
import pytest
from slow_cases import checkered

from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.policy_weights import read_policy


def slow(launcher):
    return pytest.param(launcher, marks=pytest.mark.slow)


LAUNCHERS = (slow("inline"), slow("threads"), "processes", slow("hosts"), slow("ray"))
LIMITS = {
    "reached max_seconds": ["--max-seconds", 20],
    "learner/step >= 20 was to end the run": ["--stop-when", "learner/step >= 20"],
    "patience is over": ["--patience", 1, "--evaluate-every", 2000],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_trains_until_a_return_is_reached_and_leaves_nothing(train, launcher):
    """As for inline until its limit, in test_inline.py."""
    evaluation = ["--evaluate-every", 3000, "--evaluation-episodes", 10, "--evaluation-envs", 10, "--stop-return", 5]
    run = train("--launcher", launcher, "--actors", 1, "--max-steps", 10_000_000, *evaluation)
    assert run.wait() == 0, run.text()
    assert "a mean over 10 episodes, has reached 5 within" in run.end_line()
    last = run.rows()[-1]
    assert last["environment_steps"] >= 3000
    assert last["learner_steps"] >= 15
    assert last["learner/policy_lag"] >= 0
    assert any(row.get("evaluator/return", 0) >= 5 for row in run.rows())
    assert (run.run_dir / "checkpoints" / "best.npz").exists()
    checkpoint = max((run.run_dir / "checkpoints").glob("0*"))
    assert step_of(checkpoint) == last["learner_steps"]
    counters = json.loads((checkpoint / "counters.json").read_text())
    assert sum(counts.get("environment_steps", 0) for counts in counters.values()) == last["environment_steps"]
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_run_begins_with_other_weights_and_ends_after_exactly_so_many_learner_steps(start, train, tmp_path, launcher):
    short = ["--evaluation-episodes", 2, "--evaluation-envs", 2, "--stop-return", "null"]
    source = ["--run-dir", tmp_path / "source", "--launcher", "inline", "--max-learner-steps", 2, *short]
    first = start("train", "--recipe", "impala-cartpole", *source)
    assert first.wait() == 0, first.text()
    limits = ["--max-learner-steps", 40, "--patience", 1000, "--stop-when", "episodes >= 1e9", "--max-seconds", 600]
    run = train("--launcher", launcher, "--init-from", tmp_path / "source", "--freeze", "torso", *limits, *short)
    assert run.wait() == 0, run.text()
    assert "The run is over: reached max_learner_steps (40 learner steps). Score: " in run.end_line()
    assert "learner/0: begins with " in run.text()
    policies = [max((path / "checkpoints").glob("0*")) for path in (tmp_path / "source", run.run_dir)]
    assert [step_of(path) for path in policies] == [2, 40]
    before, after = (read_policy(path / "policy.npz") for path in policies)
    for name, old, new in zip(before.names, before.values, after.values, strict=True):
        assert np.array_equal(old, new) == name.startswith("torso/"), name
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher, reason", checkered(("inline", "threads", "processes", "hosts", "ray"), LIMITS))
def test_other_limits_end_a_run(train, launcher, reason):
    short = ["--evaluation-episodes", 2, "--evaluation-envs", 2, "--stop-return", "null", "--max-steps", 10_000_000]
    run = train("--launcher", launcher, *LIMITS[reason], *short)
    assert run.wait() == 0, run.text()
    assert reason in run.end_line()
    assert "Score: " in run.end_line()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.covering("case", "launcher")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_agent_runs(train, case, launcher):
    run = train("--launcher", launcher, "--max-steps", 10_000_000, "--stop-return", "null", recipe=case.recipe)
    run.wait_for_steps(3, "learner_steps")
    run.interrupt()
    assert run.wait() == 130, run.text()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [launcher for launcher in LAUNCHERS if launcher != "processes"])
def test_ctrl_c_ends_the_run_with_a_checkpoint(train, launcher):
    """As for processes in test_resume.py."""
    run = train("--launcher", launcher, "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_for_steps(3000)
    run.interrupt()
    assert run.wait(timeout=60) == 128 + signal.SIGINT
    assert run.end_line().startswith("The run is over: stopped by SIGINT. ")
    assert "Traceback" not in run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_environment_that_fails_ends_the_run_with_its_traceback(train, launcher):
    settings = [
        "--env",
        "broken_environments:RaisesOnReset",
        "--check-env",
        "false",
        "--actors",
        1,
        "--evaluator",
        "false",
    ]
    run = train("--launcher", launcher, *settings, recipe=None)
    assert run.wait() == 1
    assert run.end_line() == "RuntimeError: the simulator is not there"
    assert "actor/0 failed" in run.text()
    assert "in reset" in run.text()
    assert run.leftovers() == []


@pytest.mark.slow
def test_an_observation_that_is_not_a_number_ends_the_run_with_one_line(train):
    run = train("--launcher", "processes", "--env", "broken_environments:GivesNaN", recipe=None)
    assert run.wait() == 1
    assert "Traceback" not in run.text()
    assert "the observation of environment 0 in the batch is NaN as float32: fix the environment" in run.end_line()
    assert run.leftovers() == []
