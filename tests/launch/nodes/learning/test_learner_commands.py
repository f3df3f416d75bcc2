"""The commands of a session to a learner."""

import threading

import numpy as np
import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.nodes.learning.learner_commands import LearnerCommands
from callboard.launch.nodes.learning.prepared_learner import prepare_learner
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.checkpoints import Checkpoints, NotWritten
from callboard.launch.run_directory.layout import RunDirectory

BIAS = "torso/dense/bias"


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    """A prepared learner, and checkpoints."""
    experiment = parse_experiment("impala", {}, ["--env=CartPole-v1", "--agent.network.hidden-sizes=[4]"])
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    directory.create()
    context = NodeContext("learner/0", "a", threading.Event(), lambda kind, content: None, None)
    checkpoints = Checkpoints(directory)
    run = Run(experiment, check_experiment(experiment).whole, directory)
    return prepare_learner(context, run, 0, [None], checkpoints, lambda *_: None), checkpoints


def commands_of(learner, learners=1, save=None):
    """The commands of a learner, and a list that grows with every publication of its weights."""
    prepared, checkpoints = learner
    published = []

    def save_checkpoint(keep):
        return checkpoints.save(3, prepared.modules, prepared.policy, {}, keep=keep)

    commands = LearnerCommands(prepared, checkpoints, learners, save or save_checkpoint, lambda: published.append(1))
    return commands.by_name, published


@pytest.mark.slow("daily")
def test_weights_are_set_and_restored_and_published_each_time(learner):
    commands, published = commands_of(learner)
    saved = commands["save"]()
    commands["set_weights"]({BIAS: np.full(4, 2.0)})
    assert commands["get_weights"]()[BIAS].tolist() == [2.0] * 4 and len(published) == 1
    assert commands["restore"](saved) == 3
    assert commands["get_weights"]()[BIAS].tolist() == [0.0] * 4 and len(published) == 2


def test_what_cannot_be_done_is_refused_and_nothing_is_published(learner, tmp_path):
    def full(keep):
        raise NotWritten("No space left on device")

    commands, published = commands_of(learner, save=full)
    with pytest.raises(CallboardError, match="no checkpoint could be written: No space left on device"):
        commands["save"]()
    for path, problem in ((tmp_path, "manifest.json is missing"), (tmp_path / "none", "it is missing")):
        with pytest.raises(CallboardError, match=rf"is not a checkpoint that can be used \({problem}\); name what `sa"):
            commands["restore"](str(path))
    several, also_published = commands_of(learner, learners=2)
    for name, argument in (("restore", "path"), ("set_weights", {BIAS: np.ones(4)})):
        with pytest.raises(CallboardError, match="the weights of 2 learners cannot be changed while they learn"):
            several[name](argument)
    assert not published and not also_published
