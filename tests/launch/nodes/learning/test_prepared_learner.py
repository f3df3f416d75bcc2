"""What a learner trains: new, or continued from a checkpoint."""

import threading

import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.nodes.learning.prepared_learner import prepare_learner
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory


@pytest.fixture
def run(tmp_path):
    experiment = parse_experiment("impala", {}, ["--env=CartPole-v1", "--agent.network.hidden-sizes=[4]"])
    directory = RunDirectory(tmp_path)
    directory.create()
    return Run(experiment, check_experiment(experiment).whole, directory)


def prepared_in(run, said, published):
    context = NodeContext("learner/0", "a", threading.Event(), lambda kind, content: said.append(content), None)
    return prepare_learner(context, run, 0, [None], Checkpoints(run.directory), published)


@pytest.mark.slow("daily")
def test_a_learner_begins_anew_or_continues_from_the_newest_checkpoint(run):
    said, published = [], []

    def publish(variables, steps):
        published.append((steps, [variable.numpy() for variable in variables]))

    prepared = prepared_in(run, said, publish)
    assert prepared.steps == 0 and published[0][0] == 0 and len(published) == 1
    assert prepared.layout.record is not None and run.directory.network.exists()
    assert "networks: " in said[0]

    for variable in prepared.variables:
        variable.assign_add(np.ones(variable.shape))
    Checkpoints(run.directory).save(7, prepared.modules, prepared.policy, {})
    said.clear()
    again = prepared_in(run, said, publish)
    assert again.steps == 7 and said == ["continues from learner step 7"]
    # Actors get the weights of the checkpoint, and never those before it was read.
    assert [steps for steps, _ in published] == [0, 7]
    for before, after in zip(published[0][1], published[1][1], strict=True):
        np.testing.assert_array_equal(after, before + 1)


def test_a_learner_is_a_module(run, monkeypatch):
    """Else it would train to the end, and fail at its checkpoint."""
    monkeypatch.setattr(Impala, "make_learner", lambda *arguments: object())
    with pytest.raises(CallboardError, match="Impala.make_learner must return a tf.Module, .*, not an object"):
        prepared_in(run, [], lambda *arguments: None)
