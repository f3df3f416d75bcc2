"""`callboard tune`: what it refuses, what it tells at the end, and searches that are run for real."""

import dataclasses
import json
import shutil
import sys
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
import yaml
from rich.console import Console

from callboard.agents.learning import make_optimizer
from callboard.data import CallboardError
from callboard.launch.command import main
from callboard.launch.run_directory import RunDirectory
from callboard.launch.settings import parse_experiment, read_recipe
from callboard.launch.tuning.records import Trial, TuneDirectory, best_trial, trials_table
from callboard.launch.tuning.tune import Tuning

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
        (["CARTPOLE", "--search", "agent=choice(impala,ppo)"], "name a field of it, such as agent.learning_rate"),
        (["CARTPOLE", "--search", "agent.name=choice(impala,ppo)"], "trials of different agents cannot be compared"),
        (["CARTPOLE", "--search", "actors.x=randint(1,3)"], "actors is one value and has no fields"),
        (["CARTPOLE", "--search", "agent.=choice(1,2)"], "names no setting"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "s3://bucket/x"], "must be a path, not s3://bucket/x"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "ray://head:10001"], "must run on a machine of the cluster"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "nonsense"], "'nonsense' is no address of a Ray cluster"),
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


STEPS = "environment_steps"


class TunesTrial(types.SimpleNamespace):
    """A trial as Tune's schedulers see it."""

    def __hash__(self):
        return id(self)


def add_trial(scheduler, number, checkpoint=None):
    manager = types.SimpleNamespace(checkpoint_config=types.SimpleNamespace(num_to_keep=None))
    added = TunesTrial(
        trial_id=f"x_{number:05d}",
        config={"values": {}},
        checkpoint=checkpoint,
        run_metadata=types.SimpleNamespace(checkpoint_manager=manager),
        experiment_tag="",
        is_finished=lambda: False,
    )
    scheduler.on_trial_add(types.SimpleNamespace(search_alg=None), added)
    return added


def test_asha_compares_with_what_was_reported_before_it_was_resumed(tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.tuning.search import KeptAsha

    # Trial 0 has reached `stop_return` before the second rung, and keeps its value there.
    solved = trial(0, [(1000, 500.0)], ended="it has reached 475", state="done")
    TuneDirectory(tmp_path).write_trials([solved, trial(1, [(1000, 30.0)])])
    scheduler = KeptAsha(str(tmp_path), max_t=8000, grace_period=1000, reduction_factor=4)
    scheduler.set_search_properties("return", "max")
    trials = [add_trial(scheduler, number) for number in range(3)]

    def decision(number, steps, value):
        return scheduler.on_trial_result(None, trials[number], {STEPS: steps, "return": value})

    # The best quarter of 500 and 30 begins at 382.5; of 500 alone at 500.
    assert decision(2, 1000, 380.0) == "STOP"
    assert decision(2, 1000, 20.0) == "CONTINUE"  # Decided once for each rung.
    assert decision(1, 4000, 499.0) == "STOP"
    # It has done all its steps: how good it is changes nothing any more.
    assert decision(2, 8000, 1.0) == "CONTINUE"


def test_pbt_knows_its_last_decisions_when_it_is_resumed(tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.tuning.search import KeptPbt

    TuneDirectory(tmp_path).write_trials(
        [
            trial(0, [(500, 1.0), (1000, 5.0), (1500, 7.0)]),
            # From 2000 steps back to where trial 0 was at 1000: the next decision is at 2000.
            trial(1, [(1000, 2.0), (2000, 3.0), (1500, 4.0)], takeovers=[(0, 1000)]),
            trial(2, [(500, 9.0)]),
        ]
    )
    scheduler = KeptPbt(
        str(tmp_path), time_attr=STEPS, perturbation_interval=900, hyperparam_mutations={"values": {"a": [1, 2]}}
    )
    scheduler.set_search_properties("return", "min")
    states = [scheduler._trial_state[add_trial(scheduler, number, f"checkpoint {number}")] for number in range(4)]
    assert [state.last_perturbation_time for state in states] == [1000, 1000, 0, 0]
    assert [state.last_score for state in states] == [-5.0, -3.0, None, None]
    assert [state.last_checkpoint for state in states] == ["checkpoint 0", "checkpoint 1", None, None]


def test_what_no_machine_has_room_for_is_refused(monkeypatch):
    pytest.importorskip("ray")
    from callboard.launch.tuning import search

    machines = [
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 1.0, "GPU": 2.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    monkeypatch.setattr(search, "nodes", lambda: machines)

    def check(**fields):
        search._check_cluster(Tuning(settings={}, search=[], **fields), joined=True)

    check(cpus_per_trial=4.0)
    check(gpus_per_trial=2.0)
    # Both on one machine.
    with pytest.raises(CallboardError, match="has the 2 CPU and 1 GPU of a trial, but 4 and 0, 1 and 2: lower"):
        check(cpus_per_trial=2.0, gpus_per_trial=1.0)
    with pytest.raises(CallboardError, match="under pbt the Ray cluster decides"):
        check(scheduler="pbt", concurrent=2)


@pytest.mark.parametrize("reported, expected", [(None, [False, True, True]), (4010, [False, False, True])])
def test_a_metric_that_was_reported_is_not_reported_again_after_a_resume(tmp_path, reported, expected):
    pytest.importorskip("ray")
    from callboard.launch.tuning.trial import TrialMonitor

    tuning = Tuning(settings={"evaluate_every": 4000}, search=[], metric="learner/loss")
    monitor = TrialMonitor(tuning, 0, RunDirectory(tmp_path), reported)

    def due(steps):
        # Without a checkpoint nothing is given to Tune.
        monitor.status({"environment_steps": steps, "learner_steps": 1, "learner/loss": 0.5})
        return monitor._due is not None and monitor._due.steps == steps

    assert [due(steps) for steps in (3900, 4500, 8100)] == expected


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
        *small("--search", RATE, "--samples", 3, "--scheduler", "none"),
        "--max-steps",
        300_000,
        "--evaluate-every",
        20_000,
    )
    run.wait_until(at_least(40_000), timeout=600)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    assert "callboard tune --resume --run-dir run" in run.text()
    assert "evaluator/return (max)" in run.text()
    assert run.leftovers() == []
    reached = {number: trial.environment_steps for number, trial in trials_of(run).items()}

    run = start("tune", "--resume", "--run-dir", "run")
    run.wait_until(at_least(120_000), timeout=600)
    for steps in reached.values():
        assert not steps or f"goes on from {steps:,} steps" in run.text()
    run.look()
    run.process.kill()
    assert run.wait() == -9
    run.wait_until(lambda: not [line for line in run.leftovers() if line[0].isdigit()], timeout=60)

    run = start("tune", "--resume", "--run-dir", "run")
    assert run.wait(timeout=900) == 0, run.text()
    trials = trials_of(run)
    assert [trial.state for trial in trials.values()] == ["done"] * 3
    for trial in trials.values():
        assert trial.ended.endswith("environment steps are done")
        steps = [steps for steps, _ in trial.reports]
        assert 250_000 < max(steps) < 310_000 and trial.environment_steps >= 300_000
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
@pytest.mark.parametrize(
    "recipe, fields",
    [
        ("impala-cartpole", ["learning_rate"]),
        ("apex-cartpole", ["learning_rate"]),
        ("ppo-cartpole", ["learning_rate"]),
        ("r2d2-cartpole-masked", ["learning_rate"]),
        ("sac-pendulum", ["critic_learning_rate", "actor_learning_rate", "temperature_learning_rate"]),
    ],
)
def test_weights_of_another_run_go_on_under_a_new_learning_rate(recipe, fields, tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.checkpoints import Checkpoints
    from callboard.launch.experiment import Run
    from callboard.launch.launchers.inline import make_local_roles
    from callboard.launch.program import make_program
    from callboard.launch.run import run
    from callboard.launch.run_directory import RunDirectory
    from callboard.launch.tuning.trial import adopt_checkpoint

    def experiment(name, rate):
        rates = [f"--agent.{field.replace('_', '-')}={rate}" for field in fields]
        options = [*rates, "--max-steps", "6000", "--run-dir", str(tmp_path / name)]
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
        if recipe != "ppo-cartpole":
            assert float(optimizer._learning_rate(0)) == pytest.approx(5e-4)
    if recipe == "ppo-cartpole":
        # It works out its rate at every step, which falls to 0: 5e-4 (1 - step / steps of the whole run).
        longer = dataclasses.replace(resumed, max_steps=6000)
        assert run(longer, "inline", resume=True).exit_code == 0
        step, rate = next(
            (row["learner_steps"] - 1, row["learner/learning_rate"])
            for row in map(json.loads, taker.metrics.read_text().splitlines())
            if row.get("learner_steps", 0) > int(newest.name) and row["environment_steps"] > 4000
        )
        agent = resumed.agent
        assert rate == pytest.approx(5e-4 * (1 - step / (6000 // (agent.unroll_length * agent.batch_size))))
