"""The launchers of one machine: what they declare, what they refuse, and what they start early."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.impala import Impala, ImpalaPolicy
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.local_launchers import (
    InlineLauncher,
    ProcessesLauncher,
    ThreadsLauncher,
    _eager_or_compiled,
)
from callboard.launch.launchers.node_processes.forkserver import ForkServer
from callboard.launch.program import make_program
from callboard.launch.program_nodes import nodes_of
from callboard.launch.run import run
from callboard.launch.run_directory.layout import RunDirectory

EVERY = (InlineLauncher, ThreadsLauncher, ProcessesLauncher)


def experiment(**settings):
    return Experiment(**{"agent": None, "env": "CartPole-v1", **settings})


def test_they_have_names_and_run_on_this_machine():
    assert [launcher.name for launcher in EVERY] == ["inline", "threads", "processes"]
    assert [launcher.in_this_process for launcher in EVERY] == [True, True, False]
    assert all(launcher.on_this_machine and not launcher.stores_at_urls for launcher in EVERY)


def test_inline_has_one_replay_server():
    with pytest.raises(CallboardError, match='set replay_shards to 1, not 2, or use launcher="threads" or'):
        InlineLauncher().check(experiment(replay_shards=2))
    for launcher in (ThreadsLauncher(), ProcessesLauncher()):
        launcher.check(experiment(replay_shards=2))


@pytest.mark.parametrize("launcher", [InlineLauncher(), ThreadsLauncher()])
def test_several_learners_need_several_processes(launcher):
    with pytest.raises(CallboardError, match='set learners to 1, or use launcher="processes"'):
        launcher.check(experiment(learners=2))
    ProcessesLauncher().check(experiment(learners=2))


@pytest.mark.slow("daily")
def test_with_eager_a_debugger_stops_in_every_loss_and_every_action(monkeypatch, tmp_path):
    seen = {"losses": [], "actions": []}
    loss, act = Impala.loss, ImpalaPolicy.__call__

    def visible_loss(self, *arguments, **named):
        output = loss(self, *arguments, **named)
        seen["losses"].append(float(output.loss))
        return output

    def visible_action(self, timestep, *others):
        action, extras, state = act(self, timestep, *others)
        seen["actions"].append(action.numpy())
        return action, extras, state

    monkeypatch.setattr(Impala, "loss", visible_loss)
    monkeypatch.setattr(ImpalaPolicy, "__call__", visible_action)
    settings = {"actors": 1, "envs_per_actor": 8, "max_steps": 320, "evaluator": False, "log_level": "debug"}
    agent = Impala(batch_size=8, unroll_length=20, queue_batches=1)
    learned = experiment(agent=agent, run_dir=tmp_path / "run", **settings)
    assert run(learned, InlineLauncher(eager=True)).exit_code == 0
    assert len(seen["losses"]) == 2 and np.isfinite(seen["losses"]).all()
    assert len(seen["actions"]) >= 320 // 8
    assert not tf.config.functions_run_eagerly()
    assert "took the weights of learner step 1" in (tmp_path / "run" / "logs" / "run.log").read_text()


def test_a_node_that_stands_in_a_debugger_is_not_ended(tmp_path):
    one = experiment(agent=Impala(), run_dir=tmp_path / "run")
    program = make_program(Run(one, one.layout(), RunDirectory(tmp_path / "run")))
    with _eager_or_compiled(False, program):
        assert {node.rules.timeout for _, node in nodes_of(program)} == {300.0}
    with _eager_or_compiled(True, program):
        assert {node.rules.timeout for _, node in nodes_of(program)} == {math.inf}


def test_only_processes_start_a_forkserver_early(monkeypatch):
    server = ForkServer(preload="json")
    monkeypatch.setattr("callboard.launch.launchers.node_processes.forkserver._forkserver", server)
    for launcher in EVERY:
        assert server._process is None
        launcher().prepare()
    assert server._process.poll() is None
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_actors_that_are_faster_than_the_learner_act_with_weights_of_the_last_steps(start, tmp_path, launcher):
    large = ["--agent.network.head-sizes", "[1024, 1024]"]
    settings = ["--max-steps", 40_000, "--evaluator", "false", "--launcher", launcher, "--run-dir", tmp_path / "run"]
    run = start("train", "impala", "--env", "CartPole-v1", *large, *settings)
    assert run.wait() == 0, run.text()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    lags = [row["learner/policy_lag"] for row in rows if "learner/policy_lag" in row]
    assert len(lags) > 5 and np.median(lags) < 8
