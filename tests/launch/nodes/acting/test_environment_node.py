"""Nodes that step environments: their slots, the steps that the run allows, and what they report."""

import dataclasses
import threading

import launchpad as lp
import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.agents.policies.acting import Episode, Stepper
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting.environment_node import EnvironmentNode
from callboard.launch.nodes.acting.prepared_actor import make_actor_environments
from callboard.launch.nodes.coordination.coordinator import Coordinator
from callboard.launch.nodes.node import NodeContext, NodeHandle
from callboard.launch.nodes.reports.messages import Report
from callboard.launch.nodes.reports.reporting import Reporter
from callboard.launch.run_directory.layout import RunDirectory

ENVS, MAX_STEPS = 4, 100


class Pushing(EnvironmentNode):
    """Takes the same action all the time."""

    items_written = 0

    def make_environments(self, incarnation):
        environments = make_actor_environments(self.context, self.reporter, self._run, self._index, incarnation)
        self.take_environments(environments)
        return environments.batch

    def setup(self):
        self._stepper = Stepper(self.make_environments(0))

    def step(self):
        """Acts if it may, and otherwise reports as the background thread would; returns whether it acted."""
        if not self.may_step():
            self.report()
            return False
        self.add_episodes(self._stepper.step(np.ones(ENVS, np.int32)))
        return True


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    experiment = Experiment(
        Impala(), "CartPole-v1", actors=1, envs_per_actor=ENVS, max_steps=MAX_STEPS, evaluator=False
    )
    return Run(experiment, experiment.layout(), directory)


def context(name, cooperative=False):
    return NodeContext(name, "a", threading.Event(), lambda kind, content: None, None, cooperative=cooperative)


@pytest.fixture
def coordinator(run):
    return Coordinator(context("coordinator/0"), run, lambda: 0.0)


@pytest.fixture
def make_node(run, coordinator):
    def make(index=0, cooperative=False, run=run):
        handle = NodeHandle("coordinator/0", lp.Address())
        handle.bind_local(coordinator)
        return Pushing(context(f"actor/{index}", cooperative), run, index, handle)

    return make


def doing(node):
    return node.context.progress.heartbeat().activity


def test_nodes_have_slots_of_their_own_and_new_episodes_in_every_incarnation(make_node):
    nodes = [make_node(index) for index in range(2)]
    assert [node.first_slot for node in nodes] == [0, ENVS]
    seen = []
    for node, incarnation in ((nodes[0], 0), (nodes[1], 0), (nodes[1], 1)):
        environment = node.make_environments(incarnation)
        assert environment.batch_size == ENVS
        seen.append(environment.reset().observation)
        assert doing(node) == "in first forward pass (compiling)"
        node.finish()
    rows = np.concatenate(seen)
    assert len(np.unique(rows, axis=0)) == 3 * ENVS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "environments 4 to 7: "),  # One object for the whole batch.
        ({"vectorized": False}, "environment 6: "),
    ],
)
@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("no pole\nat all"), "ValueError: no pole"), (SystemExit(3), "SystemExit: 3")],
)
def test_a_function_that_raises_is_refused_with_its_environment_in_one_line(
    run, make_node, options, message, error, line
):
    called = []

    def fail_third(environment):
        called.append(environment)
        if len(called) == 3 or not options:
            raise error

    experiment = dataclasses.replace(run.experiment, env_options=options)
    node = make_node(1, run=dataclasses.replace(run, experiment=experiment))
    with pytest.raises(CallboardError, match="the environments do not exist yet"):
        node.command("for_each_environment")(fail_third)
    environment = node.make_environments(0)
    with pytest.raises(CallboardError) as caught:
        node.command("for_each_environment")(fail_third)
    assert str(caught.value) == message + line
    environment.close()


def test_the_first_steps_are_requested_from_the_coordinator(make_node):
    node = make_node()
    node.setup()
    assert not node.may_step() and doing(node) == "waiting for steps that are left to do"
    node.report()
    assert node.may_step() and doing(node) == "in first forward pass (compiling)"
    node.add_episodes(node._stepper.step(np.ones(ENVS, np.int32)))
    assert node.may_step() and doing(node) == "acting"
    assert node.environment_steps == ENVS


def test_a_node_keeps_to_the_limit_of_the_run(make_node, coordinator):
    node = make_node()
    node.setup()
    for _ in range(10 * MAX_STEPS):
        node.step()
        if coordinator.limits.stopping:
            break
    assert MAX_STEPS <= node.environment_steps < MAX_STEPS + ENVS
    assert coordinator.status()["environment_steps"] == node.environment_steps


def test_a_node_that_the_coordinator_does_not_answer_does_not_act(make_node):
    node, now = make_node(), [0.0]
    node.setup()
    node.report()
    handle = NodeHandle("coordinator/0", lp.Address())
    handle.bind_local(node)
    node.reporter = Reporter(node.context, handle, node.collect, node.renew_lease, lambda: now[0])
    assert node.may_step()
    now[0] = 60.0
    assert not node.may_step() and doing(node) == "waiting for coordinator/0 to answer"


def test_where_all_nodes_share_a_thread_the_launcher_keeps_to_the_limit(make_node):
    node = make_node(cooperative=True)
    node.setup()
    node.renew_lease(0)
    assert node.may_step() and doing(node) == "acting"
    assert node.collect().lease is None


def test_an_episode_is_reported_once_and_counts_are_totals(make_node):
    node = make_node()
    assert node.environment_steps == 0 and node.collect() == Report()
    node.setup()
    node.add_episodes([Episode(0, 9.0, 9), Episode(2, 12.0, 12)])
    report = node.collect()
    assert report.episodes == [(9.0, 9), (12.0, 12)] and report.lease.limit == 0
    node.add_episodes([Episode(1, 10.0, 10)])
    report = node.collect()
    assert report.episodes == [(10.0, 10)]
    assert report.counts == {"environment_steps": 0, "ignored_timesteps": 0, "episodes": 3}


def test_a_node_that_ends_reports_its_last_steps_and_closes_its_environments(make_node, coordinator):
    node = make_node()
    node.setup()
    node.report()
    assert node.step()
    node.finish()
    assert coordinator.status()["environment_steps"] == ENVS
    assert doing(node) == "closing its environments"
