"""Central inference: the same trajectories as local inference, incarnations of actors, and nodes that die."""

import json
import math
import os
import signal
import threading

import numpy as np
import pytest
import tree
from agent_cases import RUN_CASES
from local_nodes import release
from slow_cases import checkered

from callboard.data import Timestep
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.launchers.inline import make_local_nodes
from callboard.launch.launchers.screen.display import LineMonitor
from callboard.launch.nodes.acting.timestep_codec import TimestepCodec
from callboard.launch.nodes.inference import inference
from callboard.launch.program import make_program
from callboard.launch.program_nodes import describe_graph
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.layout import RunDirectory


class Tapped:
    """A writer that keeps a copy of what it receives."""

    def __init__(self, writer, kept):
        self._writer = writer
        self._kept = kept

    def append(self, record, state):
        self._kept.append(tree.map_structure(np.array, (record, state)))
        self._writer.append(record, state)

    def __getattr__(self, name):
        return getattr(self._writer, name)


def tap(agent, monkeypatch):
    """Keeps what the agent's writers receive: lists of records and states, one per writer, by actor."""
    kept = {}
    make_writer = agent.make_writer

    def tapped(self, replay, layout, actor, networks):
        kept.setdefault(actor, []).append([])
        return Tapped(make_writer(self, replay, layout, actor, networks), kept[actor][-1])

    monkeypatch.setattr(agent, "make_writer", tapped)
    return kept


def experiment_of(recipe, *options):
    return parse_experiment(None, read_recipe(recipe), [str(option) for option in options])


FLAGS = ("first", "last", "discount")


def trajectories(case, mode, launcher, run_dir, monkeypatch, *options):
    """Runs an agent's recipe with episodes of at most 9 steps.

    Nothing is learned from sampled replay, since sampling cannot be seeded: the policy does not change.

    Returns:
      What was written, see `tap`, and the final weights.
    """
    settings = ["--actors", 2, "--envs-per-actor", 16, "--env-options.max_episode_steps", 9, "--max-steps", 1000]
    settings += ["--evaluator", "false", "--stop-return", "null", "--checkpoint-every", 10_000]
    if not case.reads_queue:
        settings += ["--agent.replay.samples-per-insert", 0.001, "--agent.replay.min-size", 50]
    settings += [f"--agent.{name}={value}" for name, value in case.short.items()]
    if case.limited_env:
        settings += ["--env", case.limited_env]
    settings += ["--run-dir", run_dir, "--inference", mode, *options]
    experiment = experiment_of(case.recipe, *settings)
    with monkeypatch.context() as patch:
        kept = tap(type(experiment.agent), patch)
        outcome = run(experiment, launcher, LineMonitor(1))
    assert outcome.exit_code == 0, outcome.error
    checkpoint = max((run_dir / "checkpoints").glob("0*"))
    with np.load(checkpoint / "policy.npz") as file:
        # Without the names of the variables.
        weights = [step_of(checkpoint), *(file[name] for name in file.files if file[name].dtype.kind != "U")]
    assert sorted(kept) == [0, 1]
    return kept, weights


def assert_same(found, wanted, tolerance=lambda path: 0.0):
    """Compares what writers received, each leaf with an absolute tolerance."""
    for actor, writers in wanted.items():
        for wanted_records, found_records in zip(writers, found[actor], strict=True):
            for pair in zip(wanted_records, found_records, strict=True):
                for (path, right), (_, left) in zip(*map(tree.flatten_with_path, pair), strict=True):
                    np.testing.assert_allclose(left, right, rtol=0, atol=tolerance(path), err_msg=f"{actor} {path}")


@pytest.mark.slow("daily")
def test_the_same_trajectories_as_local_inference(case, tmp_path, monkeypatch):
    """Including everything that is learned meanwhile if replay is a queue.

    The outputs of an LSTM differ in their last bits: if TensorFlow knows the size of a batch, it adds the terms of
    Wx + b + Uh in another order.
    """
    local, local_weights = trajectories(case, "local", "inline", tmp_path / "local", monkeypatch)
    options = ["--inference-nodes", 2]
    central, weights = trajectories(case, "central", "inline", tmp_path / "central", monkeypatch, *options)
    assert (local_weights[0] > 0) == case.reads_queue
    tree.map_structure(np.testing.assert_array_equal, weights, local_weights)
    assert_same(central, local, lambda path: 1e-6 if case.rounded & set(path) else 0.0)
    for (records,) in local.values():
        first, last, discount = (np.stack([getattr(record, name) for record, _ in records]) for name in FLAGS)
        assert len(records) > 25 and first[1:].any()
        assert discount[:-1][last[1:]].any(), "no episode was cut off"


@pytest.mark.slow
def test_batches_of_two_actors_give_the_same_trajectories(case, tmp_path, monkeypatch):
    """With constant weights, and except for rounding, which depends on the size of the batch."""
    frozen = []
    if case.reads_queue:
        frozen = ["--agent.optimizer.learning-rate", 1e-30, "--agent.network.normalize-observations", "false"]
    kept = {}
    for mode, launcher in (("local", "inline"), ("central", "threads")):
        kept[mode], _ = trajectories(case, mode, launcher, tmp_path / mode, monkeypatch, *frozen)
    rows = [json.loads(line) for line in (tmp_path / "central" / "metrics.jsonl").read_text().splitlines()]
    assert max(row.get("inference/actors_per_batch_0", 0) for row in rows) > 1
    # How the steps are divided between the actors depends on timing, as do the versions of the constant weights.
    steps = min(len(records) for writers in kept.values() for (records,) in writers.values())
    assert steps > 9
    shared = {
        mode: {
            actor: [[(record._replace(version=0), state) for record, state in records[:steps]]]
            for actor, (records,) in writers.items()
        }
        for mode, writers in kept.items()
    }
    exact = {"first", "last"} if case.continuous else {"first", "last", "observation", "action"}
    assert_same(shared["central"], shared["local"], lambda path: 0.0 if exact & set(path) else 1e-4)


class Node:
    """An inference node in this thread, and timesteps of one actor."""

    def __init__(self, nodes, layout):
        self.node = nodes["inference/0"]
        self._timesteps = TimestepCodec(layout)
        self._shape = (layout.envs_per_actor, *layout.spec.observation.shape)

    def timestep(self, number, first=False):
        batch = self._shape[0]
        observation = np.random.default_rng(number).normal(size=self._shape).astype(np.float32)
        ones = np.ones(batch, np.float32)
        return Timestep(observation, ones, ones, np.full(batch, first), np.zeros(batch, bool))

    def act(self, incarnation, number, timestep, actor=0, seed=1):
        """Returns the reply to an actor."""
        return self.node.act(actor, incarnation, seed, number, self._timesteps.pack(timestep))


@pytest.fixture(
    scope="module", params=["impala-cartpole-masked", pytest.param("r2d2-cartpole-masked", marks=pytest.mark.slow)]
)
def node(tmp_path_factory, request):
    """A node with a recurrent policy, and what its writers receive; the last one is that of the newest incarnation."""
    small = [
        "--actors",
        2,
        "--envs-per-actor",
        2,
        "--agent.network.lstm-size",
        4,
        "--agent.network.hidden-sizes",
        "[4]",
    ]
    alone = ["--evaluator", "false", "--stop-return", "null"]
    experiment = experiment_of(request.param, *small, *alone, "--inference", "central")
    one_run = Run(experiment, check_experiment(experiment).whole, RunDirectory(tmp_path_factory.mktemp("node")))
    one_run.directory.create()
    with pytest.MonkeyPatch.context() as patch:
        kept = tap(type(experiment.agent), patch)
        # Waiting for a batch would raise an error.
        patch.setattr(inference, "_DEADLINE_SECONDS", math.inf)
        nodes = make_local_nodes(make_program(one_run), threading.Event(), lambda *message: None)
        try:
            for local_node in nodes.values():
                local_node.setup()
            made = Node(nodes, one_run.layout)
            made.kept = kept
            yield made
        finally:
            release(nodes)


@pytest.mark.slow("daily")
def test_a_restarted_actor_gets_a_fresh_state_and_a_new_writer(node):
    # Not `first`, at which the network itself resets its state.
    for number in range(4):
        known, action = node.act("one", number, node.timestep(number))
        assert known and action[0].shape == (2,)
    for number in range(3):
        assert node.act("two", number, node.timestep(number))[0]
    one, two = node.kept[0][-2:]
    assert [len(one), len(two)] == [3, 2]
    hidden = [[getattr(state, "core", state).hidden for _, state in written] for written in (one, two)]
    assert not hidden[0][0].any() and not hidden[1][0].any()
    assert all(state.any() for states in hidden for state in states[1:])
    # The same observations, from the same state.
    np.testing.assert_array_equal(hidden[1][1], hidden[0][1])
    for number, (record, _) in enumerate(one):
        np.testing.assert_array_equal(record.observation, node.timestep(number).observation)
    # The node did not receive the first timesteps of this incarnation, nor does the newest one continue the second.
    assert node.act("three", 5, node.timestep(5)) == (False, None)
    assert not node.act("two", 4, node.timestep(4))[0]
    assert node.act("two", 3, node.timestep(3))[0]


@pytest.mark.slow("daily")
def test_nodes_that_share_a_thread_do_not_wait_for_a_batch(node):
    for number in range(2):
        for actor in range(2):
            assert node.act("in turn", number, node.timestep(number), actor)[1] is not None


@pytest.mark.parametrize(
    "options, message",
    [
        (["--inference-nodes", 2], "set inference to central"),
        (["--inference", "central", "--actors", 2, "--inference-nodes", 3], "set inference_nodes to at most 2"),
        (["--inference", "central", "--inference-nodes", 0], "inference_nodes must be a whole number from 1 to 10,000"),
    ],
)
def test_impossible_settings_are_rejected(options, message):
    with pytest.raises(CallboardError, match=message):
        check_experiment(experiment_of("impala-cartpole", *options))


def test_the_graph_lists_the_calls_between_nodes():
    experiment = experiment_of("impala-cartpole", "--inference", "central", "--actors", 3, "--inference-nodes", 2)
    lines = describe_graph(make_program(Run(experiment, experiment.layout(), RunDirectory("run")))).splitlines()
    assert "inference x 2  ->  coordinator, learner, replay" in lines
    assert "actor x 3  ->  coordinator, inference" in lines


def name_of(value):
    return getattr(value, "name", value)


def newest(run, name):
    return next((row[name] for row in reversed(run.rows()) if name in row), 0)


@pytest.mark.slow
@pytest.mark.parametrize("case, launcher", checkered(RUN_CASES, ["threads", "processes"]), ids=name_of)
def test_every_agent_runs_with_actors_that_share_a_node(train, case, launcher):
    settings = ["--inference", "central", "--actors", 2, "--envs-per-actor", 16, "--stop-return", "null"]
    if not case.reads_queue:
        # Otherwise a slow learner would let only one actor continue at a time.
        settings += ["--agent.replay.samples-per-insert", 1]
    run = train("--launcher", launcher, "--max-steps", 10_000_000, *settings, recipe=case.recipe)
    run.wait_for_steps(3, "learner_steps")
    run.wait_for_steps(1, "episodes")
    run.wait_until(lambda: newest(run, "inference/actors_per_batch_0") > 1)
    run.interrupt()
    assert run.wait() == 130, run.text()
    last = run.rows()[-1]
    if "learner/policy_lag" in last and case.name == "ppo":
        assert last["learner/policy_lag"] == 0
    assert run.leftovers() == []


@pytest.mark.slow
def test_several_nodes_share_the_actors(train):
    run = train("--inference", "central", "--actors", 4, "--inference-nodes", 2, "--stop-return", 475)
    assert run.wait(timeout=400) == 0, run.text()
    assert "has reached 475" in run.end_line()
    for rank, actors in enumerate(("0, 2", "1, 3")):
        log = (run.run_dir / "logs" / f"inference-{rank}.log").read_text()
        assert f"ready to act for actors {actors}\n" in log
        assert newest(run, f"inference/actors_per_batch_{rank}") > 0
    assert run.leftovers() == []


@pytest.mark.slow
def test_actors_on_two_hosts_share_a_node_on_one_of_them(hosts):
    hosts = hosts("a", "b", "c")
    hosts.write_cluster(learner=["a"], replay=["a"], inference=["b"], actor={"b": 1, "c": 1}, evaluator=["a"])
    started = hosts.start_all("--inference", "central", "--max-steps", 30_000, "--stop-return", "null")
    for on_host in started:
        assert on_host.wait() == 0, on_host.text()
    assert newest(started[0], "inference/actors_per_batch_0") > 1
    assert hosts.leftovers() == []


@pytest.mark.slow
def test_on_ray(train):
    settings = ["--inference", "central", "--inference-nodes", 2, "--max-steps", 30_000, "--stop-return", "null"]
    run = train("--launcher", "ray", *settings)
    assert run.wait() == 0, run.text()
    assert min(newest(run, f"inference/actors_per_batch_{rank}") for rank in range(2)) == 1
    assert run.leftovers() == []


NODES = ("actor/0", "inference/0", "learner/0", "replay/0")


def kill(run, node):
    """Kills a node of a run that learns, and waits until it has restarted and the run continues."""
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    run.wait_for_steps(3, "learner_steps")
    killed = run.pid_of(node)
    os.kill(killed, signal.SIGKILL)
    run.wait_until(lambda: f"{node}: killed by SIGKILL; started again" in run.text(), timeout=10)
    run.wait_until(lambda: run.pid_of(node) != killed, timeout=60)
    steps, learned = run.rows()[-1]["environment_steps"], run.rows()[-1]["learner_steps"]
    run.wait_for_steps(steps + 3000)
    run.wait_for_steps(learned + 3, "learner_steps")
    # Each actor began once; the one that died began again, or all of them if their inference node died.
    log = run.run_dir / "logs" / "inference-0.log"
    begun = {"actor/0": [2, 1], "inference/0": [2, 2]}.get(node, [1, 1])
    run.wait_until(lambda: [log.read_text().count(f"actor {index} begins") for index in range(2)] == begun, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("case, node", checkered(RUN_CASES, NODES), ids=name_of)
def test_the_run_survives_the_death_of_a_node(train, case, node):
    settings = ["--inference", "central", "--actors", 2, "--checkpoint-every", 2, "--stop-return", "null"]
    run = train(*settings, "--max-steps", 10_000_000, "--max-learner-steps", "null", recipe=case.recipe)
    kill(run, node)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []


PRIORITIZED = {"batch_size": 32, "replay.min_size": 100, "replay.samples_per_insert": 4, "network.hidden_sizes": [8]}
REPORTING = {
    "LoggedImpala": {
        "unroll_length": 5,
        "batch_size": 16,
        "network.core": "lstm",
        "network.lstm_size": 8,
        "optimizer.learning_rate": 1e-6,
    },
    "LoggedApex": {"n_step": 3, **PRIORITIZED},
    "LoggedR2D2": {
        "burn_in": 2,
        "trace_length": 8,
        "period": 5,
        "network.lstm_size": 8,
        "network.stream_size": 0,
        **PRIORITIZED,
    },
    "LoggedSac": PRIORITIZED,
}


@pytest.mark.slow
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("agent", REPORTING)
def test_learned_sequences_are_complete_when_a_node_dies(start, tmp_path, agent, node):
    environment = "NumberedContinuous" if agent == "LoggedSac" else "Numbered"
    settings = ["--env", f"numbered:{environment}", "--max-steps", 100_000_000, "--checkpoint-every", 2]
    settings += ["--inference", "central", "--actors", 2, "--envs-per-actor", 4, "--run-dir", tmp_path / "run"]
    settings += [f"--agent.{name}={value}" for name, value in REPORTING[agent].items()]
    run = start("train", f"numbered:{agent}", "--evaluator", "false", *settings)
    kill(run, node)
    if node == "actor/0":
        # The four environments of its second incarnation.
        run.wait_until(lambda: len({line[0] for line in learned_lines(run)}) == 2 * 4 + 4, timeout=60)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []
    lines = learned_lines(run)
    assert len(lines) > 1000
    assert {fault for *_, fault in lines} == {"-"}
    # Each item is in replay once, and is learned from once if replay is a queue.
    assert len({tuple(line[:2]) for line in lines}) == len(set(lines))
    if agent == "LoggedImpala":
        assert len(set(lines)) == len(lines)
        # The state of every environment's first timestep was examined.
        assert {environment for environment, step, *_ in lines if step == "1"} == {line[0] for line in lines}


def learned_lines(run):
    return [tuple(line.split()) for line in (run.directory / "learned.txt").read_text().splitlines()]
