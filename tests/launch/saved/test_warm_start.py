"""Warm starts: what a new run takes over from another, and what is refused."""

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from slow_cases import slow_but
from untrained_runs import write_run

from callboard.agents.variables.weight_names import named_weights
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import save_policy
from callboard.launch.run_directory.remote_storage import Storage
from callboard.launch.saved.warm_start import check_warm_start, initialize

ENVIRONMENTS = {"sac": "Pendulum-v1"}
SMALL = "--agent.network.hidden-sizes=[4]"


def options_of(agent):
    return [f"--env={ENVIRONMENTS.get(agent, 'CartPole-v1')}", SMALL]


def networks_of(experiment):
    networks = experiment.agent.make_networks(experiment.acting_layout())
    return networks, experiment.agent.make_policy(networks, "train")


def write_source(path, agent="impala", options=None):
    """Writes a run with a checkpoint of step 5, and best weights of 7; returns all weights by name."""
    experiment, directory = write_run(path, agent, options or options_of(agent), best=False)
    networks, policy = networks_of(experiment)
    Checkpoints(directory).save(5, {"learner": tf.Module(), "networks": networks}, policy, {})
    weights = {name: weight.numpy() for name, weight in named_weights(networks).items()}
    for weight in policy.variables:
        weight.assign(tf.cast(tf.fill(weight.shape, 7), weight.dtype))
    save_policy(directory.best_policy, policy, mean_return=0.0, learner_step=4)
    return weights


def test_paths_of_other_runs_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policies = "--policies={main: {}, old: {weights: runs/a@best}, far: {weights: s3://b/c}}"
    experiment = parse_experiment("impala", {}, [*options_of("impala"), policies]).with_absolute_sources()
    weights = [experiment.policies[name].weights for name in ("old", "far")]
    assert weights == [f"{tmp_path}/runs/a@best", "s3://b/c"] and experiment.init_from is None


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source")
    return path, write_source(path)


def define(agent="impala", **settings):
    return dataclasses.replace(parse_experiment(agent, {}, options_of(agent)), **settings)


def begun(experiment):
    """The weights, by name, with which the experiment begins, and those that it would have begun with."""
    check_warm_start(experiment, experiment.agent, experiment.acting_layout())
    networks, policy = networks_of(experiment)
    before = {name: weight.numpy() for name, weight in named_weights(networks).items()}
    initialize(experiment, networks, policy)
    acting = {id(weight) for weight in policy.variables}
    after = {name: weight.numpy() for name, weight in named_weights(networks).items()}
    return after, before, {name for name, weight in named_weights(networks).items() if id(weight) in acting}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("agent", slow_but(["impala", "ppo", "apex", "r2d2", "sac"], "sac"))
def test_every_agent_begins_with_all_weights_of_the_latest_checkpoint(agent, tmp_path):
    weights = write_source(tmp_path, agent)
    for reference in (str(tmp_path), f"{tmp_path}@5"):
        after, _, _ = begun(define(agent, init_from=reference))
        assert after.keys() == weights.keys()
        for name, value in weights.items():
            np.testing.assert_array_equal(after[name], value)
    after, before, acting = begun(define(agent, init_from=f"{tmp_path}@best"))
    for name in after:
        np.testing.assert_array_equal(after[name], np.full_like(before[name], 7) if name in acting else before[name])


@pytest.mark.slow("daily")
def test_only_parts(source):
    path, weights = source
    after, before, _ = begun(define(init_from=str(path), init_parts="torso/*, head/value"))
    taken = {name for name in after if name.startswith(("torso/", "head/value/"))}
    assert 0 < len(taken) < len(after)
    for name in after:
        np.testing.assert_array_equal(after[name], weights[name] if name in taken else before[name])


def test_parts_of_a_network_whose_other_parts_differ(source):
    path, weights = source
    # Acrobot has another observation and another number of actions.
    wider = parse_experiment("impala", {}, ["--env=Acrobot-v1", "--agent.network.hidden-sizes=[4,4]"])
    there = {**define().__dict__, "agent": wider.agent, "init_from": str(path), "init_parts": "head"}
    after, _, _ = begun(type(wider)(**there))
    np.testing.assert_array_equal(after["head/value/output/kernel"], weights["head/value/output/kernel"])


def test_parts_of_another_agent_s_network(source):
    path, weights = source
    after, _, _ = begun(define("ppo", init_from=str(path), init_parts="torso"))
    np.testing.assert_array_equal(after["torso/dense/kernel"], weights["torso/dense/kernel"])


@pytest.mark.parametrize(
    "settings, options, message",
    [
        ({"init_from": "{}/nowhere"}, [], "there is no run in .*nowhere to take weights from"),
        ({"init_from": "{}@6"}, [], "has no checkpoint 6; choose from best, latest, 5"),
        (
            {"init_from": "{}"},
            ["--agent.network.hidden-sizes=[5]"],
            r"kernel has the shape \(4, 256\) there and \(5, 256\) here",
        ),
        (
            {"init_from": "{}"},
            ["--agent.network.core=lstm"],
            r"it has no core/lstm/.*choose with init_parts: .*torso/\*",
        ),
        (
            {"init_from": "{}"},
            ["--env=Acrobot-v1"],
            r"has the shape \(256, 2\) there and \(256, 3\) here; .*parts that fit are head/value/\*",
        ),
        ({"init_from": "{}", "init_parts": "tors"}, [], "init_parts 'tors' matches no weights.*did you mean 'torso'"),
        ({"init_from": "{}@best"}, ["--agent.network.core=lstm"], "it has no core/lstm/"),
        ({"freeze": "hed/*"}, [], r"freeze 'hed/\*' matches no weights.*did you mean 'head/\*'"),
        ({"freeze": ("torso", "head")}, [], "freeze leaves no weights to train"),
    ],
)
def test_what_does_not_fit_is_refused(source, settings, options, message):
    path, _ = source
    settings = {name: value.format(path) if isinstance(value, str) else value for name, value in settings.items()}
    experiment = dataclasses.replace(parse_experiment("impala", {}, [*options_of("impala"), *options]), **settings)
    with pytest.raises(CallboardError, match=message):
        check_warm_start(experiment, experiment.agent, experiment.acting_layout())


def test_further_weights_of_the_source_are_refused(tmp_path):
    write_source(tmp_path, options=[*options_of("impala"), "--agent.network.core=lstm"])
    experiment = define(init_from=str(tmp_path))
    with pytest.raises(CallboardError, match="it also has core/lstm/"):
        check_warm_start(experiment, experiment.agent, experiment.acting_layout())


@pytest.mark.slow("daily")
def test_a_run_at_a_url(source, tmp_path):
    path, weights = source
    url = f"file://{tmp_path}/stored"
    storage, directory = Storage(url), RunDirectory(path)
    for name in ("experiment.yaml", "checkpoints/best.npz"):
        storage.store(name, path)
    storage.store_whole(f"checkpoints/{Checkpoints(directory).latest().name}", path)
    for reference in (url, f"{url}@5"):
        after, _, _ = begun(define(init_from=reference))
        np.testing.assert_array_equal(after["torso/dense/kernel"], weights["torso/dense/kernel"])
    after, _, _ = begun(define(init_from=f"{url}@best"))
    assert (after["torso/dense/kernel"] == 7).all()
    with pytest.raises(CallboardError, match="stored has no checkpoint 6; choose from best, latest, 5"):
        begun(define(init_from=f"{url}@6"))


@pytest.mark.slow
def test_a_run_begins_with_the_weights_and_a_resumed_one_has_its_own(tmp_path):
    weights = write_source(tmp_path / "source")
    small = ["--env-options.max_episode_steps=9", "--agent.batch-size=8", "--agent.unroll-length=5", "--no-evaluator"]
    warm = [f"--init-from={tmp_path / 'source'}", "--freeze=torso", f"--run-dir={tmp_path / 'run'}"]
    kept = ["--checkpoint-every-steps=1", "--keep-checkpoints=3"]
    experiment = parse_experiment("impala", {}, [*options_of("impala"), *small, *warm, *kept])
    said = []
    monitor = SimpleNamespace(notify=said.append, status=lambda status: None)
    moved = []
    for resume, steps in ((False, 3), (True, 6)):
        limited = dataclasses.replace(experiment, max_learner_steps=steps)
        assert run(limited, "inline", monitor, resume=resume).exit_code == 0
        networks, policy = networks_of(experiment)
        checkpoints = Checkpoints(RunDirectory(tmp_path / "run"))
        assert list(dict.fromkeys(checkpoints.steps())) == list(range(steps - 2, steps + 1))
        latest = checkpoints.named(str(steps))
        tf.train.Checkpoint(networks=networks).read(str(latest / "learner")).expect_partial()
        for name, weight in named_weights(networks).items():
            if name.startswith("torso/"):
                np.testing.assert_array_equal(weight.numpy(), weights[name])
        moved.append(named_weights(networks)["head/value/output/kernel"].numpy())
        # A resumed run does not need the other one.
        shutil.rmtree(tmp_path / "source", ignore_errors=True)
    assert sum("begins with" in text for text in said) == 1
    assert not np.array_equal(moved[0], moved[1])
    # Three steps change a weight by little: it began with the other run's.
    assert np.abs(moved[0] - weights["head/value/output/kernel"]).max() < 0.1
