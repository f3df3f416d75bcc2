"""One trial of a search: its reports, and weights and optimizers that come from another run."""

import dataclasses
import json
import pathlib
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES
from local_nodes import release

from callboard.agents.learning.optimizers import make_optimizer
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.agents.variables.weights import pack_weights
from callboard.files.manifest import write_manifest
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.layout import RunDirectory
from callboard.studies.tuning.search_definition import Tuning


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


@pytest.mark.parametrize("reported, expected", [(None, [False, True, True]), (4010, [False, False, True])])
def test_a_metric_that_was_reported_is_not_reported_again_after_a_resume(tmp_path, reported, expected):
    pytest.importorskip("ray")
    from callboard.studies.tuning.trial import TrialMonitor

    tuning = Tuning(settings={"evaluate_every": 4000}, search=[], metric="learner/loss")
    monitor = TrialMonitor(tuning, 0, RunDirectory(tmp_path), reported)

    def due(steps):
        # Without a checkpoint nothing is given to Tune.
        monitor.status({"environment_steps": steps, "learner_steps": 1, "learner/loss": 0.5})
        return bool(monitor._due) and monitor._due[-1].steps == steps

    assert [due(steps) for steps in (3900, 4500, 8100)] == expected


def test_values_that_come_before_the_next_checkpoint_are_all_reported_with_it(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from callboard.studies.tuning import trial as trial_module

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


def test_a_trial_of_several_policies_reports_and_takes_over_the_checkpoints_of_all(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from callboard.studies.tuning import trial as trial_module

    reported = []

    def take(metrics, checkpoint):
        shutil.copytree(checkpoint.path, tmp_path / "handed")
        reported.append(metrics)

    monkeypatch.setattr(trial_module.ray_tune, "report", take)
    donor, taker = RunDirectory(tmp_path / "donor"), RunDirectory(tmp_path / "taker")
    monitor = trial_module.TrialMonitor(Tuning(settings={}, search=[]), 3, donor, None, ["left", "right"])

    def save(directory, policy, learner_step):
        checkpoint = directory.of_policy(policy).checkpoints / f"{learner_step:012d}"
        checkpoint.mkdir(parents=True)
        write_manifest(checkpoint)

    evaluation = {"evaluator/return": 9.0, "evaluator/environment_steps": 500, "evaluator/learner_step": 6.5}
    status = {**evaluation, "left/learner/step": 8, "right/learner/step": 5}
    save(donor, "left", 8)
    monitor.status(status)
    assert reported == []
    save(donor, "right", 5)
    monitor.status(status)
    assert reported == [{"evaluator/return": 9.0, "environment_steps": 500}]

    save(taker, "left", 70)
    trial_module.adopt_checkpoint(tmp_path / "handed", taker)
    found = {policy: [one.name for one in taker.of_policy(policy).checkpoints.iterdir()] for policy in taker.policies}
    assert found == {"left": ["000000000008"], "right": ["000000000005"]}


def test_the_policies_of_a_trial_are_those_that_learn():
    pytest.importorskip("ray")
    from callboard.studies.tuning.trial import policies_of_trial

    experiment = parse_experiment("ppo", {}, ["--env=echo_agents:Echo", "--policies={left: {}, right: random}"])
    assert policies_of_trial(experiment) == ["left"]
    assert policies_of_trial(dataclasses.replace(experiment, policies={})) == ["shared"]
    assert policies_of_trial(parse_experiment("ppo", {}, ["--env=CartPole-v1"])) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", AGENT_CASES, ids=lambda case: case.name)
def test_weights_of_another_run_continue_under_a_new_learning_rate(case, tmp_path):
    pytest.importorskip("ray")
    from callboard.launch.experiments.checked_run import Run
    from callboard.launch.launchers.inline import make_local_nodes
    from callboard.launch.program import make_program
    from callboard.launch.run import run
    from callboard.launch.run_directory.checkpoints import Checkpoints
    from callboard.studies.tuning.trial import adopt_checkpoint

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
        make_program(Run(resumed, check_experiment(resumed).whole, taker)),
        threading.Event(),
        lambda name, kind, content: None,
    )
    for name in ("coordinator/0", "replay/0", "learner/0"):
        roles[name].setup()
    learner = roles["learner/0"]
    version, given = learner.get_variables(None)
    release(roles)
    assert version[1] == step_of(newest) > 0
    with np.load(newest / "policy.npz") as file:
        saved = [file[name] for name in file.files if name.startswith("weight_")]
    np.testing.assert_array_equal(given, pack_weights(saved))
    counters = json.loads((newest / "counters.json").read_text())
    steps = sum(counts.get("environment_steps", 0) for counts in counters.values())
    assert roles["coordinator/0"].status()["environment_steps"] == steps > 0
    made = learner._prepared.learner
    optimizers = getattr(made, "optimizers", None) or [made.optimizer]
    for optimizer in optimizers:
        assert int(optimizer.iterations) > 0
        if case.name not in ("ppo", "pqn"):
            # A rate that decays begins with the last one, and rises to that of the new settings.
            assert float(optimizer._learning_rate.initial_learning_rate) == pytest.approx(5e-4)
    if case.name in ("ppo", "pqn"):
        # It works out its rate at every step, which rises from the last one to that of the new settings: 5e-4 of what
        # is left of the whole run.
        longer = dataclasses.replace(resumed, max_steps=6000)
        assert run(longer, "inline", resume=True).exit_code == 0
        rows = [row for row in map(json.loads, taker.metrics.read_text().splitlines()) if "learner_steps" in row]
        rate_of = {row["learner_steps"]: row["learner/learning_rate"] for row in rows if "learner/learning_rate" in row}
        last = max(rate_of)
        played = max(row["environment_steps"] for row in rows if row["learner_steps"] < last)
        then = min(row["environment_steps"] for row in rows if row["learner_steps"] == last)
        assert 5e-4 * (1 - then / 6000) <= rate_of[last] <= 5e-4 * (1 - played / 6000)
        if rate_of[step_of(newest)] < rate_of[last]:
            assert rate_of[last] < max(rate for step, rate in rate_of.items() if step > step_of(newest))
