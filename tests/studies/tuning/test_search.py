"""Searches on Ray Tune: what a cluster has room for, and searches that are run for real."""

import json
import shutil

import pytest
import yaml
from started_commands import ENVIRONMENTS

from callboard.errors import CallboardError
from callboard.studies.tuning.records import TuneDirectory, best_trial
from callboard.studies.tuning.search_definition import Tuning

RATE = "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"


def test_what_no_machine_has_room_for_is_refused(monkeypatch):
    pytest.importorskip("ray")
    from callboard.studies.tuning import search

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
def search(start, tmp_path):
    """Starts `callboard tune` in `tmp_path / "run"`, beside a module of the user's own."""
    shutil.copy(ENVIRONMENTS / "search_functions.py", tmp_path / "own_functions.py")

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


@pytest.mark.score
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
        *small("--search", RATE, "--samples", 2, "--max-steps", 3000, "--evaluate-every", 1000),
        # CartPole has no levels.
        *("--episode-metrics", "level", "--metric", "episode/level"),
    )
    assert run.wait(timeout=300) == 1, run.text()
    assert "2 of 2 trials: 2 failed" in run.text()
    assert "trial 01 failed: the run had no episode/level until its end; it had actor/" in run.text()
    assert "Traceback" not in run.text()
    assert not (run.run_dir / "best.yaml").exists()
    assert run.leftovers() == []


def square(*arguments):
    return ["--trial", "own_functions:trial", "--max-steps", 8, *arguments]


@pytest.mark.slow
def test_a_function_of_ones_own_is_searched_over_a_grid_with_cpus_of_its_own(search, tmp_path):
    run = search(
        *square("--search", "x=grid(1,2,3)", "--search", "y=uniform(0,1)", "--scheduler", "none", "--plot"),
        *("--cpus-per-trial", "own_functions:half"),
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
