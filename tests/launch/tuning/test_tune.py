"""`callboard tune`: what it refuses, what it tells at the end, and searches that are run for real."""

import dataclasses
import json
import shutil
import sys
import threading

import numpy as np
import pytest
import yaml
from agent_cases import AGENT_CASES

from callboard.agents.weights import pack_weights
from callboard.launch.cli.command import main
from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.settings import parse_experiment, read_recipe
from callboard.launch.tuning.records import TuneDirectory, best_trial

RATE = "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name an agent"),
        (["impala", "--search", RATE], "name an environment"),
        (["impala", "--env", "CartPole-v1"], "name what to vary: --search"),
        (["impal", "--env", "CartPole-v1", "--search", RATE], "unknown agent 'impal'; did you mean 'impala'?"),
        (["CARTPOLE", "--search", "agent.learnin_rate=uniform(0,1)"], "did you mean 'agent.optimizer.learning_rate'?"),
        (["CARTPOLE", "--search", "actor=randint(1,3)"], "unknown key 'actor'; did you mean 'actors'?"),
        (
            ["CARTPOLE", "--search", "agent.optimizer.learning_rate=choice(fast)"],
            "agent.optimizer.learning_rate must be a number",
        ),
        (["CARTPOLE", "--search", "agent.unroll_length=uniform(5,9)"], "agent.unroll_length must be a whole number"),
        (["CARTPOLE", "--search", "agent.batch_size=choice(16,24)"], "set agent.batch_size to 16 or 32"),
        (
            ["CARTPOLE", "--search", "agent.unroll_length=randint(0,9)"],
            "agent.unroll_length must be a whole number of at least 1, not 0",
        ),
        (["CARTPOLE", "--search", "run_dir=choice(a,b)"], "every trial has a directory of its own"),
        (["CARTPOLE", "--search", "max-steps=choice(5,6)"], "trials are compared by their environment steps"),
        (["CARTPOLE", "--search", "learners=choice(1,2)"], "needs its own; set learners to 1"),
        (
            ["CARTPOLE", "--search", "agent=choice(impala,ppo)"],
            "name a field of it, such as agent.optimizer.learning_rate",
        ),
        (["CARTPOLE", "--search", "agent.name=choice(impala,ppo)"], "trials of different agents cannot be compared"),
        (["CARTPOLE", "--search", "actors.x=randint(1,3)"], "actors is one value and has no fields"),
        (["CARTPOLE", "--search", "agent.=choice(1,2)"], "names no setting"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "s3://bucket/x"], "must be a path, not s3://bucket/x"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "ray://head:10001"], "must run on a machine of the cluster"),
        (["CARTPOLE", "--search", RATE, "--ray-address", "nonsense"], "'nonsense' is not the address of a Ray cluster"),
        (["CARTPOLE", "--search", "actors"], "write KEY=DISTRIBUTION"),
        (["CARTPOLE", "--search"], "--search needs a value"),
        (["CARTPOLE", "--search", RATE, "--sampels", "3"], "unknown option '--sampels'; did you mean '--samples'?"),
        (["CARTPOLE", "--search", RATE, "--max-stps", "3"], "did you mean '--max-steps'?"),
        (["CARTPOLE", "--search", RATE, "--samples", "few"], "--samples must be a whole number, not 'few'"),
        (["CARTPOLE", "--search", RATE, "--samples", "0"], "--samples must be at least 1, not 0"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "hyper"], "--scheduler must be one of asha, pbt, none"),
        (["CARTPOLE", "--search", RATE, "--mode", "most"], "--mode must be one of max, min"),
        (["CARTPOLE", "--search", RATE, "--launcher", "processes"], "--launcher must be one of inline, threads"),
        (["CARTPOLE", "--search", RATE, "--metric", "evaluator/retrun"], "did you mean 'evaluator/return'?"),
        (["CARTPOLE", "--search", RATE, "--metric", "score"], "name one of those in metrics.jsonl"),
        (["CARTPOLE", "--search", RATE, "--evaluator", "false", "--stop-return", "null"], "needs the evaluator"),
        (["CARTPOLE", "--search", RATE, "--max-steps", "9000"], "lower --evaluate-every or raise --max-steps"),
        (["CARTPOLE", "--search", RATE, "--grace-steps", "500000"], "--grace-steps must be at most max_steps"),
        (["CARTPOLE", "--search", RATE, "--reduction-factor", "1"], "--reduction-factor must be at least 2"),
        (["CARTPOLE", "--search", RATE, "--cpus-per-trial", "0"], "--cpus-per-trial must be more than 0"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--samples", "1"], "needs a population"),
        (["CARTPOLE", "--search", RATE, "--scheduler", "pbt", "--perturb-every", "9"], "at least evaluate_every"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "old"], "there is already a search in old"),
        (["CARTPOLE", "--search", RATE, "--run-dir", "trained"], "there is already a run in trained"),
        (["--resume"], "--resume needs the directory of the search"),
        (["--resume", "--run-dir", "nowhere"], "there is no search to resume in nowhere"),
        (["--resume", "--run-dir", "old", "--samples", "3"], "resumed with the settings that it was started with"),
        (["--resume", "--run-dir", "old", "--max-steps", "3"], "resumed with the settings that it was started with"),
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
    assert "callboard tune needs Ray; install callboard[ray]" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_names_what_can_be_searched_and_how(capsys):
    assert main(["tune", "--help"]) == 0
    text = capsys.readouterr().out
    assert "loguniform(a,b)" in text and "--scheduler" in text and "--resume" in text


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
    return [(row["evaluator/environment_steps"], row["evaluator/return"]) for row in rows if "evaluator/return" in row]


def small(*arguments):
    """A search in small networks, whose trials last a few seconds."""
    settings = ["--agent.network.hidden-sizes=[16]", "--actors", 1, "--evaluation-episodes", 20, "--stop-return", 501]
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
    # With this seed the first sample learns nothing, and the second one well.  The search is long enough for one to
    # begin well after the other: nothing can be taken over before the donor's first decision.
    run = search(
        *small("--search", "agent.optimizer.learning_rate=loguniform(1e-8,1e-2)", "--seed", 34, "--samples", 2),
        *("--scheduler", "pbt", "--max-steps", 192_000, "--evaluate-every", 16_000, "--perturb-every", 32_000),
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
    rate = taker.values["agent.optimizer.learning_rate"]
    assert 1e-8 <= rate <= 1e-2 and rate != donor.values["agent.optimizer.learning_rate"]
    written = yaml.safe_load((run.run_dir / "trials" / f"{taker.number:02d}" / "experiment.yaml").read_text())
    assert written["agent"]["optimizer"]["learning_rate"] == rate
    # It plays as the donor did, at once.
    before = max(row["evaluator/return"] for row in rows[:first] if "evaluator/return" in row)
    after = next(row["evaluator/return"] for row in rows[first:] if "evaluator/return" in row)
    assert after > 2 * before


@pytest.mark.slow
def test_a_search_continues_after_ctrl_c_and_after_it_was_killed(search, start, tmp_path):
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
        assert not steps or f"continues from {steps:,} steps" in run.text()
    run.look()
    run.process.kill()
    assert run.wait() == -9
    run.wait_until(lambda: not [line for line in run.leftovers() if line[0].isdigit()], timeout=200)

    run = start("tune", "--resume", "--run-dir", "run")
    assert run.wait(timeout=900) == 0, run.text()
    trials = trials_of(run)
    assert [trial.state for trial in trials.values()] == ["done"] * 3
    for trial in trials.values():
        assert "reached max_steps" in trial.ended
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
@pytest.mark.parametrize("case", AGENT_CASES, ids=lambda case: case.name)
def test_weights_of_another_run_continue_under_a_new_learning_rate(case, tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.experiment import Run
    from callboard.launch.launchers.inline import make_local_nodes
    from callboard.launch.program import make_program
    from callboard.launch.run import run
    from callboard.launch.run_directory.checkpoints import Checkpoints
    from callboard.launch.tuning.trial import adopt_checkpoint

    def experiment(name, rate):
        rates = [f"--agent.{field.replace('_', '-')}={rate}" for field in case.learning_rates]
        options = [*rates, "--max-steps", "6000" if case.name == "r2d2" else "3000", "--run-dir", str(tmp_path / name)]
        return parse_experiment(None, read_recipe(case.recipe), [*options, "--evaluator=false", "--stop-return=null"])

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
    roles = make_local_nodes(
        make_program(Run(resumed, resumed.check(), taker)), threading.Event(), lambda name, kind, content: None
    )
    for name in ("coordinator/0", "replay/0", "learner/0"):
        roles[name].setup()
    learner = roles["learner/0"]
    version, given = learner.get_variables(None)
    roles["replay/0"].stop_server()
    assert version[1] == step_of(newest) > 0
    with np.load(newest / "policy.npz") as file:
        saved = [file[name] for name in file.files if name.startswith("weight_")]
    np.testing.assert_array_equal(given, pack_weights(saved))
    counters = json.loads((newest / "counters.json").read_text())
    steps = sum(counts.get("environment_steps", 0) for counts in counters.values())
    assert roles["coordinator/0"].status()["environment_steps"] == steps > 0
    optimizers = getattr(learner._learner, "optimizers", None) or [learner._learner.optimizer]
    for optimizer in optimizers:
        assert int(optimizer.iterations) > 0
        if case.name != "ppo":
            assert float(optimizer._learning_rate(0)) == pytest.approx(5e-4)
    if case.name == "ppo":
        # It works out its rate at every step, which falls to 0: 5e-4 (1 - step / steps of the whole run).
        longer = dataclasses.replace(resumed, max_steps=6000)
        assert run(longer, "inline", resume=True).exit_code == 0
        step, rate = next(
            (row["learner_steps"] - 1, row["learner/learning_rate"])
            for row in map(json.loads, taker.metrics.read_text().splitlines())
            if row.get("learner_steps", 0) > step_of(newest) and row["environment_steps"] > 4000
        )
        agent = resumed.agent
        assert rate == pytest.approx(5e-4 * (1 - step / (6000 // (agent.unroll_length * agent.batch_size))))
