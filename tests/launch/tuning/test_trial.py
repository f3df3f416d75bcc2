"""What `callboard tune` knows of its trials: records, schedulers, checkpoints that change hands."""

import dataclasses
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from callboard.agents.optimizer_settings import OptimizerSettings
from callboard.agents.optimizers import make_optimizer
from callboard.errors import CallboardError
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.tuning.records import Trial, TuneDirectory, best_trial, trials_table
from callboard.launch.tuning.search_definition import Tuning
from callboard.manifest import write_manifest

RATE = "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"


def trial(number, reports, mode="max", **fields):
    result = Trial(number, {"agent.optimizer.learning_rate": 10.0**-number}, **fields)
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
    taken_over.values = {"agent.optimizer.learning_rate": 0.5}
    taken_over.report(3000, 40.0, "max")
    assert taken_over.best_values == {"agent.optimizer.learning_rate": 0.1}
    taken_over.report(4000, 60.0, "max")
    assert taken_over.best_values == {"agent.optimizer.learning_rate": 0.5}


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


@pytest.mark.parametrize("decay", [False, True])
def test_a_checkpoint_brings_back_adam_s_moments_and_steps_but_not_its_learning_rate(tmp_path, decay):
    def step(optimizer, variable, gradient):
        before = variable.numpy()
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        return (variable.numpy() - before).item()

    settings = OptimizerSettings(learning_rate=1e-3, learning_rate_decay=decay, epsilon=1e-8, max_gradient_norm=None)
    first = make_optimizer(settings, steps=10)
    variable = tf.Variable([1.0])
    first.build([variable])
    step(first, variable, [2.0])
    path = tf.train.Checkpoint(optimizer=first, variable=variable).write(str(tmp_path / "checkpoint"))

    second = make_optimizer(dataclasses.replace(settings, learning_rate=1e-2), steps=10)
    restored = tf.Variable([0.0])
    second.build([restored])
    tf.train.Checkpoint(optimizer=second, variable=restored).read(path).assert_consumed()
    # Kingma and Ba 2015, algorithm 1, at its second step: gradients 2 and -1, and the new learning rate.
    m = 0.9 * (0.1 * 2.0) + 0.1 * -1.0
    v = 0.999 * (0.001 * 4.0) + 0.001 * 1.0
    rate = 1e-2 * (1 - 1 / 10) if decay else 1e-2
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
    with pytest.raises(CallboardError, match="has the 2 CPU and 1 GPU of a trial, but 4 and 0, 1 and 2; lower"):
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
        return bool(monitor._due) and monitor._due[-1].steps == steps

    assert [due(steps) for steps in (3900, 4500, 8100)] == expected


def test_values_that_come_before_the_next_checkpoint_are_all_reported_with_it(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from callboard.launch.tuning import trial as trial_module

    reports = []

    def take(metrics, checkpoint):
        with checkpoint.as_directory() as path:
            (step,) = (found.name for found in pathlib.Path(path).glob("0*"))
        reports.append((metrics["environment_steps"], metrics["evaluator/return"], int(step)))

    monkeypatch.setattr(trial_module.ray_tune, "report", take)
    directory = RunDirectory(tmp_path)
    monitor = trial_module.TrialMonitor(Tuning(settings={}, search=[]), 0, directory, None)

    def evaluated(steps, value, learner_step):
        status = {"evaluator/return": value, "evaluator/environment_steps": steps}
        monitor.status({**status, "evaluator/learner_step": learner_step})

    def save(learner_step):
        checkpoint = directory.checkpoints / f"{learner_step:012d}"
        checkpoint.mkdir(parents=True)
        write_manifest(checkpoint)

    save(10)
    evaluated(4000, 500.0, 26)
    evaluated(8000, 480.0, 52)
    evaluated(8000, 480.0, 52)
    assert reports == []
    save(60)
    evaluated(12_000, 90.0, 78)
    assert reports == [(4000, 500.0, 60), (8000, 480.0, 60)]
    save(80)
    evaluated(12_000, 90.0, 78)
    assert reports[2:] == [(12_000, 90.0, 80)]
