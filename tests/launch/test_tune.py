"""`callboard tune`: what it refuses, what it tells at the end, and searches that are run for real."""

import json
import shutil
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import yaml
from rich.console import Console

from callboard.agents.learning import make_optimizer
from callboard.launch.command import main
from callboard.launch.settings import parse_experiment, read_recipe
from callboard.launch.tuning.records import Trial, TuneDirectory, best_trial, trials_table

RATE = "agent.learning_rate=loguniform(1e-4,1e-2)"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name an agent"),
        (["impala", "--search", RATE], "name an environment"),
        (["impala", "--env", "CartPole-v1"], "name what to vary: --search"),
        (["impal", "--env", "CartPole-v1", "--search", RATE], "unknown agent 'impal': did you mean 'impala'?"),
        (["CARTPOLE", "--search", "agent.learnin_rate=uniform(0,1)"], "did you mean 'agent.learning_rate'?"),
        (["CARTPOLE", "--search", "actor=randint(1,3)"], "unknown key 'actor': did you mean 'actors'?"),
        (["CARTPOLE", "--search", "agent.learning_rate=choice(fast)"], "agent.learning_rate: Expected a float"),
        (["CARTPOLE", "--search", "agent.unroll_length=uniform(5,9)"], "agent.unroll_length: Expected a int"),
        (["CARTPOLE", "--search", "agent.batch_size=choice(16,24)"], "set agent.batch_size to 16 or 32"),
        (["CARTPOLE", "--search", "agent.unroll_length=randint(0,9)"], "agent.unroll_length must be at least 1, not 0"),
        (["CARTPOLE", "--search", "run_dir=choice(a,b)"], "every trial has a directory of its own"),
        (["CARTPOLE", "--search", "max-steps=choice(5,6)"], "trials are compared by their environment steps"),
        (["CARTPOLE", "--search", "learners=choice(1,2)"], "needs its own: set learners to 1"),
        (["CARTPOLE", "--search", "actors"], "write KEY=DISTRIBUTION"),
        (["CARTPOLE", "--search"], "expected one argument"),
        (["CARTPOLE", "--search", RATE, "--sampels", "3"], "unknown option --sampels: did you mean --samples?"),
        (["CARTPOLE", "--search", RATE, "--max-stps", "3"], "did you mean --max-steps?"),
        (["CARTPOLE", "--search", RATE, "--samples", "few"], "invalid int value: 'few'"),
        (["CARTPOLE", "--search", RATE, "--samples", "0"], "--samples must be at least 1, not 0"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "hyper"], "--scheduler must be one of asha, pbt, none"),
        (["CARTPOLE", "--search", RATE, "--mode", "most"], "--mode must be one of max, min"),
        (["CARTPOLE", "--search", RATE, "--launcher", "processes"], "--launcher must be one of inline, threads"),
        (["CARTPOLE", "--search", RATE, "--metric", "evaluator/retrun"], "did you mean evaluator/return?"),
        (["CARTPOLE", "--search", RATE, "--metric", "score"], "name one of those in metrics.jsonl"),
        (["CARTPOLE", "--search", RATE, "--evaluator", "false", "--stop-return", "null"], "needs the evaluator"),
        (["CARTPOLE", "--search", RATE, "--max-steps", "9000"], "lower --evaluate-every or raise --max-steps"),
        (["CARTPOLE", "--search", RATE, "--grace-steps", "500000"], "--grace-steps must be at most max_steps"),
        (["CARTPOLE", "--search", RATE, "--reduction-factor", "1"], "--reduction-factor must be at least 2"),
        (["CARTPOLE", "--search", RATE, "--cpus-per-trial", "0"], "--cpus-per-trial must be more than 0"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--samples", "1"], "needs a population"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--perturb-every", "9"], "at least evaluate_every"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "old"], "there is a search in old already"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "trained"], "there is a run in trained already"),
        (["--resume"], "--resume needs the directory of the search"),
        (["--resume", "--run-dir", "nowhere"], "there is no search to resume in nowhere"),
        (["--resume", "--run-dir", "old", "--samples", "3"], "resumed with the settings that it began with"),
        (["--resume", "--run-dir", "old", "--max-steps", "3"], "resumed with the settings that it began with"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("old/tune.yaml", "trained/experiment.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    if arguments[:1] == ["CARTPOLE"]:
        arguments = ["--recipe", "impala-cartpole", *arguments[1:]]
    assert main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("callboard: ") and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_ray_one_line_says_how_to_get_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ray", "ray.tune"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["tune", "--recipe", "impala-cartpole", "--search", RATE]) == 2
    error = capsys.readouterr().err
    assert "callboard tune needs Ray: pip install 'callboard[ray]'" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_names_what_can_be_searched_and_how(capsys):
    assert main(["tune", "--help"]) == 0
    text = capsys.readouterr().out
    assert "loguniform(a,b)" in text and "--scheduler" in text and "--resume" in text


def trial(number, reports, mode="max", **fields):
    result = Trial(number, {"agent.learning_rate": 10.0**-number}, **fields)
    for steps, value in reports:
        result.report(steps, value, mode)
    return result


def test_the_best_trial_is_the_first_to_reach_the_best_value():
    trials = [
        trial(0, [(1000, 400.0), (2000, 500.0), (3000, 90.0)]),
        trial(1, [(1000, 500.0), (2000, 500.0)]),
        trial(2, [(1000, float("nan"))]),
        trial(3, []),
    ]
    assert [(t.best, t.best_steps) for t in trials] == [(500.0, 2000), (500.0, 1000), (None, 0), (None, 0)]
    assert best_trial(trials, "max").number == 1
    assert best_trial(trials[2:], "max") is None
    losses = [trial(0, [(1000, 0.3), (2000, -0.1)], "min"), trial(1, [(1000, 0.2)], "min")]
    assert best_trial(losses, "min").number == 0


def test_the_best_values_are_those_of_their_time():
    taken_over = trial(1, [(1000, 9.0), (2000, 50.0)])
    taken_over.values = {"agent.learning_rate": 0.5}
    taken_over.report(3000, 40.0, "max")
    assert taken_over.best_values == {"agent.learning_rate": 0.1}
    taken_over.report(4000, 60.0, "max")
    assert taken_over.best_values == {"agent.learning_rate": 0.5}


def test_trials_are_read_as_they_were_written(tmp_path):
    directory = TuneDirectory(tmp_path)
    assert directory.read_trials() == {}
    trials = [trial(0, [(1000, 400.0)], state="done"), trial(7, [], takeovers=[(0, 1000)], error="it broke")]
    directory.write_trials(trials)
    assert directory.read_trials() == {0: trials[0], 7: trials[1]}
    assert [path.name for path in tmp_path.iterdir()] == ["trials.json"]


def test_the_table_begins_with_the_best(capsys):
    trials = [
        trial(0, [(5000, 21.5)], state="stopped early"),
        trial(1, [(5000, 100.0), (60_000, 499.5)], state="done"),
        trial(2, [], state="failed"),
    ]
    Console(width=100).print(trials_table(trials, "evaluator/return", "max"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["evaluator/return", "(max)"]
    assert lines[2] == ["01", "0.1", "499.5", "60,000", "60,000", "done"]
    assert lines[3] == ["00", "1", "21.5", "5,000", "5,000", "stopped", "early"]
    assert lines[4] == ["02", "0.01", "-", "-", "0", "failed"]


@pytest.mark.parametrize("decay_steps", [None, 10])
def test_a_checkpoint_brings_back_adam_s_moments_and_steps_but_not_its_learning_rate(tmp_path, decay_steps):
    def step(optimizer, variable, gradient):
        before = variable.numpy()
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        return (variable.numpy() - before).item()

    first = make_optimizer("adam", 1e-3, decay_steps, 0.0, 1e-8)
    variable = tf.Variable([1.0])
    first.build([variable])
    step(first, variable, [2.0])
    path = tf.train.Checkpoint(optimizer=first, variable=variable).write(str(tmp_path / "checkpoint"))

    second = make_optimizer("adam", 1e-2, decay_steps, 0.0, 1e-8)
    restored = tf.Variable([0.0])
    second.build([restored])
    tf.train.Checkpoint(optimizer=second, variable=restored).read(path).assert_consumed()
    # Kingma and Ba 2015, algorithm 1, at its second step: gradients 2 and -1, and the new learning rate.
    m = 0.9 * (0.1 * 2.0) + 0.1 * -1.0
    v = 0.999 * (0.001 * 4.0) + 0.001 * 1.0
    rate = 1e-2 if decay_steps is None else 1e-2 * (1 - 1 / 10)
    expected = -rate * (m / (1 - 0.9**2)) / (np.sqrt(v / (1 - 0.999**2)) + 1e-8)
    np.testing.assert_allclose(step(second, restored, [-1.0]), expected, rtol=1e-4)


@pytest.fixture
def search(start, tmp_path):
    """Starts `callboard tune` in `tmp_path / "run"`."""

    def start_search(*arguments):
        return start("tune", *arguments, "--run-dir", tmp_path / "run")

    return start_search


def trials_of(run):
    return TuneDirectory(run.run_dir).read_trials()


def evaluations(directory):
    rows = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [
        (row["evaluator/at_environment_steps"], row["evaluator/return"]) for row in rows if "evaluator/return" in row
    ]


def small(*arguments):
    """A search in small networks, whose trials last a few seconds."""
    settings = ["--agent.hidden-sizes=[16]", "--actors", 1, "--evaluation-episodes", 20, "--stop-return", 501]
    return ["--recipe", "impala-cartpole", *settings, *arguments]


@pytest.mark.slow
def test_asha_finds_a_learning_rate_that_solves_cartpole_and_its_recipe_does_again(search, start, tmp_path):
    run = search(
        *("--recipe", "impala-cartpole", "--search", RATE, "--search", "agent.entropy_cost=choice(0.0,0.01)"),
        # Room for the processes below; bad trials end long before.
        *("--samples", 16, "--max-steps", 200_000, "--evaluate-every", 8000, "--grace-steps", 8000),
    )
    assert run.wait(timeout=1800) == 0, run.text()
    print(run.text())
    trials = trials_of(run)
    assert len(trials) == 16
    states = [trial.state for trial in trials.values()]
    assert set(states) <= {"done", "stopped early"}
    assert states.count("stopped early") >= 4
    for trial in trials.values():
        if trial.state == "stopped early":
            # What it did after its last report is lost: it was ended there, and not by the limit.
            assert not trial.ended and trial.environment_steps < 200_000 and trial.best < 475
    best = best_trial(trials.values(), "max")
    assert best.best >= 475
    assert f"{states.count('stopped early')} stopped early" in run.text()
    assert "callboard train --recipe run/best.yaml --launcher inline" in run.text()
    assert run.leftovers() == []

    # In one thread a seed always gives the same result.
    recipe = ["--recipe", tmp_path / "run" / "best.yaml"]
    again = start("train", *recipe, "--run-dir", tmp_path / "again", "--launcher", "inline")
    assert again.wait(timeout=300) == 0, again.text()
    assert evaluations(tmp_path / "again") == evaluations(tmp_path / "run" / "trials" / f"{best.number:02d}")
    # Processes have another timing.
    other = start("train", *recipe, "--run-dir", tmp_path / "other")
    assert other.wait(timeout=300) == 0, other.text()
    print(f"the recipe: inline {evaluations(tmp_path / 'again')}, processes {evaluations(tmp_path / 'other')}")
    assert max(value for _, value in evaluations(tmp_path / "other")) >= 475


@pytest.mark.slow
def test_pbt_gives_the_weights_of_the_good_to_the_bad(search):
    # With this seed the first sample learns slowly, and the second one well.
    run = search(
        *small("--search", "agent.learning_rate=loguniform(1e-8,1e-2)", "--seed", 7, "--samples", 2),
        *("--scheduler", "pbt", "--max-steps", 32_000, "--evaluate-every", 4000, "--perturb-every", 8000),
    )
    assert run.wait(timeout=900) == 0, run.text()
    print(run.text())
    trials = trials_of(run)
    assert [trial.state for trial in trials.values()] == ["done", "done"]
    takers = [trial for trial in trials.values() if trial.takeovers]
    assert takers, run.text()
    taker = takers[0]
    donor_number, donor_steps = taker.takeovers[0]
    donor = trials[donor_number]
    # It went back, or ahead, to where the donor was, and has gone on from there in both counters.
    assert donor_steps in [steps for steps, _ in donor.reports]
    rows = [json.loads(line) for line in (run.run_dir / "trials" / f"{taker.number:02d}" / "metrics.jsonl").open()]
    first = next(
        index for index, row in enumerate(rows) if index and row["elapsed_seconds"] < rows[index - 1]["elapsed_seconds"]
    )
    donors = [json.loads(line) for line in (run.run_dir / "trials" / f"{donor_number:02d}" / "metrics.jsonl").open()]
    then = next(row for row in donors if row["environment_steps"] >= donor_steps)
    assert rows[first]["environment_steps"] > donor_steps
    assert rows[first]["learner_steps"] > then["learner_steps"]
    # The new learning rate is near the donor's, or another sample; and the run has it.
    rate = taker.values["agent.learning_rate"]
    assert 1e-8 <= rate <= 1e-2 and rate != donor.values["agent.learning_rate"]
    written = yaml.safe_load((run.run_dir / "trials" / f"{taker.number:02d}" / "experiment.yaml").read_text())
    assert written["agent"]["learning_rate"] == rate
    # It plays as the donor did, at once.
    before = max(row["evaluator/return"] for row in rows[:first] if "evaluator/return" in row)
    after = next(row["evaluator/return"] for row in rows[first:] if "evaluator/return" in row)
    assert after > 2 * before


@pytest.mark.slow
def test_a_search_goes_on_after_ctrl_c_and_after_it_was_killed(search, start, tmp_path):
    def at_least(steps):
        return lambda: (
            run.process.poll() is not None
            or [trial for trial in trials_of(run).values() if trial.environment_steps >= steps]
        )

    run = search(
        *small("--search", RATE, "--samples", 3, "--scheduler", "none"), "--max-steps", 60_000, "--evaluate-every", 4000
    )
    run.wait_until(at_least(8000), timeout=300)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert "callboard tune --resume --run-dir run" in run.text()
    assert "evaluator/return (max)" in run.text()
    assert run.leftovers() == []
    reached = {number: trial.environment_steps for number, trial in trials_of(run).items()}

    run = start("tune", "--resume", "--run-dir", "run")
    run.wait_until(at_least(24_000), timeout=300)
    for steps in reached.values():
        assert not steps or f"goes on from {steps:,} steps" in run.text()
    run.look()
    run.process.kill()
    assert run.wait() == -9
    run.wait_until(lambda: not any(process.is_running() for process in run.seen.values()), timeout=60)

    run = start("tune", "--resume", "--run-dir", "run")
    assert run.wait(timeout=900) == 0, run.text()
    trials = trials_of(run)
    assert [trial.state for trial in trials.values()] == ["done"] * 3
    for trial in trials.values():
        assert trial.ended.endswith("environment steps are done")
        steps = [steps for steps, _ in trial.reports]
        assert 50_000 < max(steps) < 62_000 and trial.environment_steps >= 60_000
    # Nothing is left to do: the table comes at once.
    again = start("tune", "--resume", "--run-dir", "run")
    assert again.wait() == 0
    assert "3 of 3 trials: 3 done" in again.text()


@pytest.mark.slow
def test_trials_that_fail_are_told_with_their_last_line(search):
    run = search(
        *small(
            "--search", RATE, "--samples", 2, "--metric", "learner/los", "--max-steps", 3000, "--evaluate-every", 1000
        )
    )
    assert run.wait(timeout=300) == 1, run.text()
    assert "2 of 2 trials: 2 failed" in run.text()
    assert "trial 01 failed: the run had no learner/los until its end; it had actor/" in run.text()
    assert "Traceback" not in run.text()
    assert not (run.run_dir / "best.yaml").exists()
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["impala-cartpole", "apex-cartpole", "ppo-cartpole", "sac-pendulum"])
def test_weights_of_another_run_go_on_under_a_new_learning_rate(recipe, tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.checkpoints import Checkpoints
    from callboard.launch.experiment import Run
    from callboard.launch.launchers.inline import make_local_roles
    from callboard.launch.program import make_program
    from callboard.launch.run import run
    from callboard.launch.run_directory import RunDirectory
    from callboard.launch.tuning.trial import adopt_checkpoint

    def experiment(name, rate):
        options = ["--agent.learning-rate", rate, "--max-steps", "3000", "--run-dir", str(tmp_path / name)]
        return parse_experiment(None, read_recipe(recipe), [*options, "--evaluator=false", "--stop-return=null"])

    for name, rate in [("donor", "1e-3"), ("taker", "2e-3")]:
        assert run(experiment(name, rate), "inline").exit_code == 0
    donor, taker = (RunDirectory(tmp_path / name) for name in ("donor", "taker"))
    newest = Checkpoints(donor).latest()
    # As Tune hands it over: the checkpoint's directory, and beside it whose it is.
    shutil.copytree(newest, tmp_path / "handed" / newest.name)
    (tmp_path / "handed" / "trial.json").write_text("{}")
    adopt_checkpoint(tmp_path / "handed", taker)
    assert [path.name for path in taker.checkpoints.glob("0*")] == [newest.name]

    resumed = experiment("taker", "5e-4")
    roles = make_local_roles(
        make_program(Run(resumed, resumed.check(), taker)), threading.Event(), lambda name, kind, content: None
    )
    for name in ("coordinator/0", "replay/0", "learner/0"):
        roles[name].setup()
    learner = roles["learner/0"]
    version, given = learner.get_variables(None)
    roles["replay/0"].stop_server()
    assert version[1] == int(newest.name) > 0
    with np.load(newest / "policy.npz") as file:
        saved = [file[name] for name in file.files if name.startswith("weight_")]
    for ours, theirs in zip(given, saved, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    counters = json.loads((newest / "counters.json").read_text())
    steps = sum(counts.get("environment_steps", 0) for counts in counters.values())
    assert roles["coordinator/0"].status()["environment_steps"] == steps > 0
    optimizers = getattr(learner._learner, "optimizers", None) or [learner._learner.optimizer]
    for optimizer in optimizers:
        assert int(optimizer.iterations) > 0
        rate = optimizer._learning_rate
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            assert float(rate(0)) == pytest.approx(5e-4)
