"""Going on with a run: counters and weights from where they stood."""

import json
import threading

import numpy as np
import pytest

from callboard.data import CallboardError
from callboard.launch.experiment import Run
from callboard.launch.launchers.inline import make_local_roles
from callboard.launch.program import make_program
from callboard.launch.run import run as run_experiment
from callboard.launch.run_directory import RunDirectory
from callboard.launch.settings import read_experiment


def counters_of(checkpoint):
    sources = json.loads((checkpoint / "counters.json").read_text())
    return {name: sum(counts.get(name, 0) for counts in sources.values()) for name in ("environment_steps", "episodes")}


@pytest.fixture(scope="module")
def interrupted(command_run, tmp_path_factory):
    """A run that was stopped by Ctrl-C, as one fixture for all tests here."""
    directory = tmp_path_factory.mktemp("resume")
    arguments = ["train", "--recipe", "impala-cartpole", "--run-dir", directory / "run"]
    run = command_run([*arguments, "--max-steps", 10_000_000, "--stop-return", 501], directory)
    try:
        run.wait_for_steps(4000)
        run.interrupt()
        assert run.wait(timeout=20) == 130
    finally:
        run.end()
    return run


def test_counters_and_weights_go_on(interrupted, start, tmp_path):
    (checkpoint,) = (interrupted.run_dir / "checkpoints").glob("0*")
    before = counters_of(checkpoint)
    with np.load(checkpoint / "policy.npz") as file:
        saved = [file[name] for name in file.files if name.startswith("weight_")]

    # What the first actor is given, from the learner itself.
    experiment = read_experiment(interrupted.run_dir)
    program = make_program(Run(experiment, experiment.check(), RunDirectory(interrupted.run_dir)))
    roles = make_local_roles(program, threading.Event(), lambda name, kind, content: None)
    for name in ("coordinator/0", "replay/0", "learner/0"):
        roles[name].setup()
    learner = roles["learner/0"]
    coordinator = roles["coordinator/0"]
    version, given = learner.get_variables(None)
    assert version[1] == int(checkpoint.name)
    assert len(saved) == len(given)
    for ours, theirs in zip(saved, given, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    status = coordinator.status()
    assert {name: status[name] for name in before} == before
    assert status["learner_steps"] == int(checkpoint.name)
    roles["replay/0"].finish()

    resumed = start(
        "train", "--resume", "--run-dir", interrupted.run_dir, "--max-steps", before["environment_steps"] + 4000
    )
    assert resumed.wait() == 0, resumed.text()
    assert f"learner/0: goes on from learner step {int(checkpoint.name):,}" in resumed.text()
    latest = max((interrupted.run_dir / "checkpoints").glob("0*"))
    assert int(latest.name) > int(checkpoint.name)
    assert counters_of(latest)["environment_steps"] >= before["environment_steps"] + 4000


def test_changed_networks_are_refused_by_name_and_the_run_is_left_as_it_was(interrupted):
    before = (interrupted.run_dir / "experiment.yaml").read_text()
    experiment = read_experiment(interrupted.run_dir, ["--agent.hidden-sizes", "[32]"])
    with pytest.raises(CallboardError, match=r"the network has changed .*kernel:0 was \(64, 2\) and is now \(32, 2\)"):
        run_experiment(experiment, "inline", resume=True)
    assert (interrupted.run_dir / "experiment.yaml").read_text() == before


def test_a_run_is_not_overwritten(interrupted):
    with pytest.raises(CallboardError, match="there is a run in .* already: go on with it by --resume"):
        run_experiment(read_experiment(interrupted.run_dir), "inline")
