"""Searches on Ray Tune: schedulers and the journal, what a cluster has room for, and searches that are run for real."""

import json
import pickle
import types

import pytest
import yaml

from callboard.errors import CallboardError
from callboard.launch.tuning.records import Trial, TuneDirectory, best_trial
from callboard.launch.tuning.search_definition import Tuning

RATE = "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"


def trial(number, reports, mode="max", **fields):
    result = Trial(number, {"agent.optimizer.learning_rate": 10.0**-number}, **fields)
    for steps, value in reports:
        result.report(steps, value, mode)
    return result


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
    monkeypatch.setattr(Tuning, "samples_of_all", lambda self: [{"a": 1}, {"a": 2}])
    monkeypatch.setattr(Tuning, "cpus", lambda self, values: 4.0 * values["a"])
    with pytest.raises(CallboardError, match="has the 8 CPU and 0 GPU of a trial"):
        check(cpus_per_trial="nodes")
    check(gpus_per_trial=2.0)
    # Both on one machine.
    with pytest.raises(CallboardError, match="has the 2 CPU and 1 GPU of a trial, but 4 and 0, 1 and 2; lower"):
        check(cpus_per_trial=2.0, gpus_per_trial=1.0)
    with pytest.raises(CallboardError, match="under pbt the Ray cluster decides"):
        check(scheduler="pbt", concurrent=2)


@pytest.fixture
def journal(tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.tuning.search import Journal

    return Journal(tmp_path, Tuning(settings={}, search=[]))


def tunes_trial(number, directory, checkpoint=None):
    error_file = directory / "error.txt"
    error_file.write_text("Traceback:\n  ...\ncallboard.errors.CallboardError: set actors to 1\n")
    fields = {"config": {"values": {"actors": 2}}, "checkpoint": checkpoint, "error_file": str(error_file)}
    return TunesTrial(trial_id=f"x_{number:05d}", **fields)


def test_the_journal_keeps_reports_ends_and_errors_of_trials(journal, tmp_path, capsys):
    from callboard.launch.tuning.trial import AT_STEPS, ENDED, TOTAL_STEPS

    first, second, third = (tunes_trial(number, tmp_path) for number in range(3))
    for started in (first, second, third):
        journal.on_trial_start(0, [], started)
    metric = "evaluator/return"
    journal.on_trial_result(0, [], first, {STEPS: 1000, metric: 20.0})
    journal.on_trial_result(0, [], first, {AT_STEPS: 2000, metric: 50.0, TOTAL_STEPS: 2100, ENDED: "reached max_steps"})
    journal.on_trial_complete(0, [], first)
    journal.on_trial_result(0, [], second, {STEPS: 1000, metric: 10.0})
    journal.on_trial_complete(0, [], second)
    journal.on_trial_error(0, [], third)
    done, stopped, failed = TuneDirectory(tmp_path).read_trials().values()
    assert (done.state, done.environment_steps, done.best, done.best_steps) == ("done", 2100, 50.0, 2000)
    assert done.reports == [(1000, 20.0), (2000, 50.0)]
    assert (stopped.state, stopped.ended) == ("stopped early", "")
    assert (failed.state, failed.error) == ("failed", "set actors to 1")
    assert "Traceback" in TuneDirectory(tmp_path).run(2).log("error").read_text()
    lines = capsys.readouterr().out.splitlines()
    assert "trial 00 begins: actors 2" in lines and "trial 02 failed: set actors to 1" in lines
    assert "trial 01 stopped early at 1,000 steps, best evaluator/return 10" in lines


def test_the_journal_of_a_resumed_search_knows_the_trials_before(journal, tmp_path, capsys):
    from ray.tune import Checkpoint

    journal.on_trial_start(0, [], tunes_trial(0, tmp_path))
    journal.on_trial_start(0, [], tunes_trial(1, tmp_path))
    again = pickle.loads(pickle.dumps(journal))
    (tmp_path / "handed").mkdir()
    (tmp_path / "handed" / "trial.json").write_text(json.dumps({"trial": 0, STEPS: 4000}))
    handed = Checkpoint.from_directory(tmp_path / "handed")
    capsys.readouterr()
    for number in (0, 1, 1):
        again.on_trial_start(0, [], tunes_trial(number, tmp_path, handed))
    assert capsys.readouterr().out.splitlines() == [
        "trial 00 continues from 4,000 steps",
        *["trial 01 continues from trial 00 at 4,000 steps: actors 2"] * 2,
    ]
    # The same takeover is recorded once.
    assert TuneDirectory(tmp_path).read_trials()[1].takeovers == [(0, 4000)]


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
def test_trials_that_fail_are_reported_with_their_last_line(search):
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


def square(*arguments):
    return ["--trial", "search_functions:trial", "--max-steps", 8, *arguments]


@pytest.mark.slow
def test_a_function_of_ones_own_is_searched_over_a_grid_with_cpus_of_its_own(search, tmp_path):
    run = search(
        *square("--search", "x=grid(1,2,3)", "--search", "y=uniform(0,1)", "--scheduler", "none", "--plot"),
        *("--cpus-per-trial", "search_functions:half"),
    )
    assert run.wait(timeout=300) == 0, run.text()
    assert "3 of 3 trials: 3 done" in run.text() and "best: trial 02" in run.text()
    assert [trial.reports for trial in trials_of(run).values()] == [
        [(step, 10.0 * x + step) for step in range(1, 9)] for x in (1, 2, 3)
    ]
    assert (run.run_dir / "search.png").exists() and "callboard train" not in run.text()
    assert yaml.safe_load((run.run_dir / "best.yaml").read_text())["x"] == 3
    assert run.leftovers() == []


@pytest.mark.slow
def test_a_search_with_optuna_is_resumed(search, start):
    pytest.importorskip("optuna")
    run = search(
        *square("--search", "x=uniform(0,100)", "--scheduler", "none"),
        *("--sampler", "optuna", "--samples", 4, "--concurrent", 1),
    )
    run.wait_until(lambda: run.process.poll() is not None or len(trials_of(run)) >= 3, timeout=600)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    before = {number: trial for number, trial in trials_of(run).items() if trial.state == "done"}
    run = start("tune", "--resume", "--run-dir", "run")
    assert run.wait(timeout=600) == 0, run.text()
    trials = trials_of(run)
    assert before and all(trials[number] == trial for number, trial in before.items())
    assert list(trials) == list(range(4)) and {trial.state for trial in trials.values()} == {"done"}
    assert len({trial.values["x"] for trial in trials.values()}) == 4


@pytest.mark.slow
def test_optuna_finds_more_than_chance_and_is_resumed(search, start):
    pytest.importorskip("optuna")
    run = search(
        *square("--search", "x=uniform(0,100)", "--search", "kind=choice([1],[2])", "--scheduler", "none"),
        *("--sampler", "optuna", "--samples", 24, "--concurrent", 1),
    )
    run.wait_until(lambda: run.process.poll() is not None or len(trials_of(run)) >= 14, timeout=1200)
    run.interrupt()
    assert run.wait(timeout=120) == 130, run.text()
    before = {number: trial for number, trial in trials_of(run).items() if trial.state == "done"}
    run = start("tune", "--resume", "--run-dir", "run")
    assert run.wait(timeout=1200) == 0, run.text()
    trials = trials_of(run)
    assert list(trials) == list(range(24)) and {trial.state for trial in trials.values()} == {"done"}
    assert all(trials[number] == trial for number, trial in before.items())
    values = [trials[number].values["x"] for number in range(24)]
    assert sum(values[12:]) / 12 > 70 > 60 > sum(values[:10]) / 10
    assert {tuple(trial.values["kind"]) for trial in trials.values()} == {(1,), (2,)}
