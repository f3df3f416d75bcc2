"""The graph in parts on Ray: every agent runs on them unchanged, also while Ray restarts a server or a task."""

import contextlib
import pathlib
import shutil
import tempfile
import time

import numpy as np
import psutil
import pytest
import ray
from ray._common.utils import get_ray_address_file
from ray.cluster_utils import Cluster

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.agents.sac import Sac
from callboard.agents.td3 import TD3
from callboard.agents.weights import WeightClient, pack_weights
from callboard.data import Version
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.launchers.ray.parts import rollout, start_parts, train
from callboard.launch.nodes.node import Unreachable
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.policy_weights import read_policy
from callboard.nested_settings import from_values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """Two machines, and a head without room for tasks."""
    # Sockets of Unix have short paths.
    directory = tempfile.mkdtemp(prefix="r", dir="/tmp")
    # `Cluster` writes its address there even if it has another directory, and does not make the folder.
    pathlib.Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": directory}
    started = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            started.add_node(num_cpus=3)
        started.wait_for_nodes()
        ray.init(started.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        started.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start(cluster, tmp_path):
    """Starts the parts of an experiment, and ends those that the test has left."""
    started = []

    def start_experiment(agent, env, actors=1, resume=False, restore=None, name="run", **settings):
        run_dir = tmp_path / name
        experiment = Experiment(agent=agent, env=env, actors=actors, envs_per_actor=2, run_dir=run_dir, **settings)
        parts = start_parts(experiment, resume, restore)
        started.append(parts)
        return parts

    yield start_experiment
    for parts in started:
        for server in (parts.coordinator, parts.weights, *parts.replay):
            ray.kill(server.actor)


SMALL = {
    "batch_size": 32,
    "replay.min_size": 100,
    "replay.size": 10_000,
    "replay.samples_per_insert": 8,
    "network.hidden_sizes": (16,),
}
SMALL_SAC = from_values(Sac, SMALL)
SMALL_APEX = from_values(Apex, SMALL)
SMALL_PPO = Ppo(unroll_length=16, batch_size=4, epochs=2, minibatches=2)


def wait_until(condition, seconds=300.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run_until_learner_steps(parts, tasks, steps):
    def reached():
        done, _ = ray.wait(tasks, timeout=0)
        ray.get(done)
        return parts.status()["learner_steps"] >= steps

    wait_until(reached)


def start_tasks(parts, **arguments):
    return [
        train.remote(parts, **arguments),
        *(rollout.remote(parts, index) for index in range(parts.run.experiment.actors)),
    ]


def end(parts, tasks):
    """Stops all tasks, and returns their results."""
    parts.stop()
    results = ray.get(tasks, timeout=120)
    parts.close()
    return results


def newest_weights(parts):
    """Version and values of the weights on the parameter server."""
    agent = parts.run.experiment.agent
    policy = agent.make_policy(agent.make_networks(parts.run.layout), "evaluate")
    client = WeightClient(parts.weights.client(timeout=30.0), policy.variables)
    client.fetch()
    assert client.apply()
    return client.version, [variable.numpy() for variable in policy.variables]


def published_version(parts):
    """Version of the weights on the parameter server; None if it has none or is starting."""
    try:
        snapshot = parts.weights.client(timeout=5.0).get_variables(None)
    except Unreachable:
        return None
    return None if snapshot is None else Version(*snapshot[0])


def processes_of(*names):
    """Processes of this test's own cluster that run an actor or a task with one of these names."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            is_one = child.name().startswith(tuple(f"ray::{name}" for name in names))
            if is_one and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def test_sac_learns_while_ray_restarts_every_server_and_a_rollout(start):
    parts = start(SMALL_SAC, "Pendulum-v1", actors=2)
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 1)
    early, before = newest_weights(parts)
    run_until_learner_steps(parts, tasks, early.step + 20)
    wait_until(lambda: published_version(parts) > early)
    _, after = newest_weights(parts)
    assert any((old != new).any() for old, new in zip(before, after, strict=True))

    parts.weights.client(timeout=30.0).publish((99, 0), pack_weights(after))
    assert published_version(parts) == (99, 0)
    ray.kill(parts.weights.actor, no_restart=False)
    # A restarted server has lost them, and receives the learner's again.
    wait_until(lambda: (published_version(parts) or Version(99, 0)).incarnation == early.incarnation)

    steps = parts.status()["environment_steps"]
    ray.kill(parts.coordinator.actor, no_restart=False)
    wait_until(lambda: parts.status()["environment_steps"] > steps)

    handle = parts.replay_handle()
    address = handle.address()
    ray.kill(parts.replay[0].actor, no_restart=False)
    wait_until(lambda: handle.address() != address)
    steps = parts.status()["learner_steps"]
    # Learning continues with what the same tasks write to the new server.
    run_until_learner_steps(parts, tasks, steps + 50)

    victim = processes_of("rollout")[0]
    victim.kill()
    wait_until(lambda: len(set(processes_of("rollout")) - {victim}) == 2)

    status = parts.status()
    learner_steps, *rollouts = end(parts, tasks)
    assert learner_steps >= steps + 50 and len(rollouts) == 2
    assert np.isfinite([value for name, value in status.items() if name.startswith("learner/")]).all()
    assert status["replay/items_0"] >= 100
    assert (parts.run.directory.metrics).exists() and Checkpoints(parts.run.directory).newest_step() == learner_steps


@pytest.mark.parametrize(
    ("agent", "env", "settings"),
    [
        (SMALL_SAC, "Pendulum-v1", {"actors": 2, "replay_shards": 2, "learners": 2}),
        (SMALL_PPO, "CartPole-v1", {}),
    ],
    ids=["two shards and two learners", "an agent that limits its actors' lead"],
)
def test_learns_with_several_learners_and_with_pacing(start, agent, env, settings):
    parts = start(agent, env, **settings)
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 10)
    if agent is SMALL_SAC:
        # Each shard gets its actor's transitions.
        wait_until(lambda: all(parts.status()[f"replay/items_{shard}"] >= 50 for shard in range(2)))
    wait_until(lambda: published_version(parts).step > 0)
    assert end(parts, tasks)[0] >= 10


def test_priorities_return_to_the_replay_server(start):
    parts = start(SMALL_APEX, "CartPole-v1")
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 20)
    client = parts.replay_handle().client()
    wait_until(lambda: len(priorities_by_key(client)) > 100)
    before = priorities_by_key(client)
    # Only the learner changes an item that has been written.
    wait_until(lambda: changed(before, priorities_by_key(client)) > 10)
    end(parts, tasks)


def priorities_by_key(client):
    samples = client.sample("replay", 200, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def changed(before, after):
    return sum(before[key] != after[key] for key in before.keys() & after.keys())


def test_tasks_end_after_their_steps_and_leave_no_actor(start):
    parts = start(SMALL_SAC, "Pendulum-v1", actors=2)
    with pytest.raises(CallboardError, match="rollout 2 does not exist; the experiment has actors 0 to 1"):
        ray.get(rollout.remote(parts, 2))
    with pytest.raises(CallboardError, match="steps must be a number above 0, not -5"):
        ray.get(rollout.remote(parts, 1, steps=-5))
    with pytest.raises(CallboardError, match="push_interval must be at least 0.05 seconds, not 0"):
        ray.get(train.remote(parts, push_interval=0))
    learner = train.remote(parts, steps=30, push_interval=1000.0)
    assert ray.get(rollout.remote(parts, 0, steps=80), timeout=300) == 80
    # At such an interval, only the first and the last weights are sent.
    assert published_version(parts) == (0, 0)
    endless = rollout.remote(parts, 1)
    assert ray.get(learner, timeout=300) == 30
    assert newest_weights(parts)[0] == Version(0, 30)
    # A learner that ends stops the others.
    assert ray.get(endless, timeout=120) > 0
    parts.close()
    wait_until(lambda: not processes_of("rollout", "train", "TaskCoordinator", "ParameterServer", "ReplayNode"))


def test_rollouts_keep_to_the_steps_of_the_run(start):
    parts = start(SMALL_SAC, "Pendulum-v1", actors=2, max_steps=500)
    tasks = start_tasks(parts)
    _, *steps = ray.get(tasks, timeout=300)
    # Less than a timestep of each rollout more.
    assert 500 <= sum(steps) == parts.status()["environment_steps"] < 500 + 2 * 2


def test_saved_weights_are_restored_and_a_run_is_resumed(start, tmp_path):
    parts = start(SMALL_SAC, "Pendulum-v1")
    ray.get([train.remote(parts, steps=10), rollout.remote(parts, 0)], timeout=300)
    _, before = newest_weights(parts)
    saved = tmp_path / "weights.npz"
    parts.save_weights(saved)
    with pytest.raises(CallboardError, match="could not be written to .*: No such file or directory"):
        parts.save_weights(tmp_path / "missing" / "weights.npz")
    parts.close()
    for value, kept in zip(before, read_policy(saved).values, strict=True):
        np.testing.assert_array_equal(value, kept)

    restored = start(SMALL_SAC, "Pendulum-v1", restore=saved, name="restored")
    # Rollouts act with them, and a learner begins with them.
    assert ray.get(rollout.remote(restored, 0, steps=10), timeout=300) == 10
    assert newest_weights(restored)[0] == Version(0, 0)
    learner = train.remote(restored)
    wait_until(lambda: published_version(restored) == (1, 0))
    for value, first in zip(before, newest_weights(restored)[1], strict=True):
        np.testing.assert_array_equal(value, first)
    end(restored, [learner])

    resumed = start(SMALL_SAC, "Pendulum-v1", resume=True)
    learner = train.remote(resumed)
    wait_until(lambda: published_version(resumed) == (1, 10))
    end(resumed, [learner])


def test_the_learners_error_is_raised_and_stops_the_rollouts(start):
    class Broken(Sac):
        def loss(self, networks, sample, seed):
            raise CallboardError("nothing to lose")

    parts = start(from_values(Broken, SMALL), "Pendulum-v1")
    learner, *rollouts = start_tasks(parts)
    with pytest.raises(CallboardError, match="nothing to lose"):
        ray.get(learner, timeout=300)
    assert sum(ray.get(rollouts, timeout=120)) > 0


def test_the_error_of_a_server_is_raised_by_the_tasks(start):
    class Broken(Sac):
        def make_replay(self, layout):
            replay = super().make_replay(layout)

            class WithoutTables(type(replay)):
                def tables(self):
                    raise CallboardError("nothing to replay")

            object.__setattr__(replay, "__class__", WithoutTables)
            return replay

    parts = start(from_values(Broken, SMALL), "Pendulum-v1")
    with pytest.raises(CallboardError, match="nothing to replay"):
        ray.get(rollout.remote(parts, 0), timeout=300)


def test_an_invalid_experiment_is_refused_before_anything_starts(start, tmp_path):
    with pytest.raises(CallboardError, match="td3 has a deterministic policy"):
        start(TD3(), "CartPole-v1")
    with pytest.raises(CallboardError, match="is a URL; take a path, or --launcher ray"):
        start_parts(Experiment(agent=SMALL_SAC, env="Pendulum-v1", run_dir="file:///tmp/x"))
    assert not list(tmp_path.iterdir())
