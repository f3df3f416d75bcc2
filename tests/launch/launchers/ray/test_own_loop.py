"""Single nodes of the graph on Ray: every agent runs on them unchanged, also while Ray restarts a server or a task."""

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
from callboard.agents.variables.weights import WeightClient, pack_weights
from callboard.data import Version
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.ray.own_loop import rollout, start_servers, train
from callboard.launch.nodes.node import Unreachable
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.policy_weights import read_policy
from callboard.settings.nested_settings import from_values

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
    """Starts the servers of an experiment, and ends those that the test has left."""
    started = []

    def start_experiment(agent, env, actors=1, resume=False, restore=None, name="run", **settings):
        run_dir = tmp_path / name
        experiment = Experiment(agent=agent, env=env, actors=actors, envs_per_actor=2, run_dir=run_dir, **settings)
        servers = start_servers(experiment, resume, restore)
        started.append(servers)
        return servers

    yield start_experiment
    for servers in started:
        for server in (servers.coordinator, servers.weights, *servers.replay):
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


def run_until_learner_steps(servers, tasks, steps):
    def reached():
        done, _ = ray.wait(tasks, timeout=0)
        ray.get(done)
        return servers.status()["learner_steps"] >= steps

    wait_until(reached)


def start_tasks(servers, **arguments):
    return [
        train.remote(servers, **arguments),
        *(rollout.remote(servers, index) for index in range(servers.run.experiment.actors)),
    ]


def end(servers, tasks):
    """Stops all tasks, and returns their results."""
    servers.stop()
    results = ray.get(tasks, timeout=120)
    servers.close()
    return results


def newest_weights(servers):
    """Version and values of the weights on the parameter server."""
    agent = servers.run.experiment.agent
    policy = agent.make_policy(agent.make_networks(servers.run.layout), "evaluate")
    client = WeightClient(servers.weights.client(timeout=30.0), policy.variables)
    client.fetch()
    assert client.apply()
    return client.version, [variable.numpy() for variable in policy.variables]


def published_version(servers):
    """Version of the weights on the parameter server; None if it has none or is starting."""
    try:
        snapshot = servers.weights.client(timeout=5.0).get_variables(None)
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
    servers = start(SMALL_SAC, "Pendulum-v1", actors=2)
    tasks = start_tasks(servers)
    run_until_learner_steps(servers, tasks, 1)
    early, before = newest_weights(servers)
    run_until_learner_steps(servers, tasks, early.step + 20)
    wait_until(lambda: published_version(servers) > early)
    _, after = newest_weights(servers)
    assert any((old != new).any() for old, new in zip(before, after, strict=True))

    servers.weights.client(timeout=30.0).publish((99, 0), pack_weights(after))
    assert published_version(servers) == (99, 0)
    ray.kill(servers.weights.actor, no_restart=False)
    # A restarted server has lost them, and receives the learner's again.
    wait_until(lambda: (published_version(servers) or Version(99, 0)).incarnation == early.incarnation)

    steps = servers.status()["environment_steps"]
    ray.kill(servers.coordinator.actor, no_restart=False)
    wait_until(lambda: servers.status()["environment_steps"] > steps)

    handle = servers.replay_handle()
    address = handle.address()
    ray.kill(servers.replay[0].actor, no_restart=False)
    wait_until(lambda: handle.address() != address)
    steps = servers.status()["learner_steps"]
    # Learning continues with what the same tasks write to the new server.
    run_until_learner_steps(servers, tasks, steps + 50)

    victim = processes_of("rollout")[0]
    victim.kill()
    wait_until(lambda: len(set(processes_of("rollout")) - {victim}) == 2)

    status = servers.status()
    learner_steps, *rollouts = end(servers, tasks)
    assert learner_steps >= steps + 50 and len(rollouts) == 2
    assert np.isfinite([value for name, value in status.items() if name.startswith("learner/")]).all()
    assert status["replay/items_0"] >= 100
    assert servers.run.directory.metrics.exists() and Checkpoints(servers.run.directory).newest_step() == learner_steps


@pytest.mark.parametrize(
    ("agent", "env", "settings"),
    [
        (SMALL_SAC, "Pendulum-v1", {"actors": 2, "replay_shards": 2, "learners": 2}),
        (SMALL_PPO, "CartPole-v1", {}),
    ],
    ids=["two shards and two learners", "an agent that limits its actors' lead"],
)
def test_learns_with_several_learners_and_with_pacing(start, agent, env, settings):
    servers = start(agent, env, **settings)
    tasks = start_tasks(servers)
    run_until_learner_steps(servers, tasks, 10)
    if agent is SMALL_SAC:
        # Each shard gets its actor's transitions.
        wait_until(lambda: all(servers.status()[f"replay/items_{shard}"] >= 50 for shard in range(2)))
    wait_until(lambda: published_version(servers).step > 0)
    assert end(servers, tasks)[0] >= 10


def test_priorities_return_to_the_replay_server(start):
    servers = start(SMALL_APEX, "CartPole-v1")
    tasks = start_tasks(servers)
    run_until_learner_steps(servers, tasks, 20)
    client = servers.replay_handle().client()
    wait_until(lambda: len(priorities_by_key(client)) > 100)
    before = priorities_by_key(client)
    # Only the learner changes an item that has been written.
    wait_until(lambda: changed(before, priorities_by_key(client)) > 10)
    end(servers, tasks)


def priorities_by_key(client):
    samples = client.sample("replay", 200, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def changed(before, after):
    return sum(before[key] != after[key] for key in before.keys() & after.keys())


def test_tasks_end_after_their_steps_and_leave_no_actor(start):
    servers = start(SMALL_SAC, "Pendulum-v1", actors=2)
    with pytest.raises(CallboardError, match="rollout 2 does not exist; the experiment has actors 0 to 1"):
        ray.get(rollout.remote(servers, 2))
    with pytest.raises(CallboardError, match="steps must be a number above 0, not -5"):
        ray.get(rollout.remote(servers, 1, steps=-5))
    with pytest.raises(CallboardError, match="push_interval must be at least 0.05 seconds, not 0"):
        ray.get(train.remote(servers, push_interval=0))
    learner = train.remote(servers, steps=30, push_interval=1000.0)
    assert ray.get(rollout.remote(servers, 0, steps=80), timeout=300) == 80
    # At such an interval, only the first and the last weights are sent.
    assert published_version(servers) == (0, 0)
    endless = rollout.remote(servers, 1)
    assert ray.get(learner, timeout=300) == 30
    assert newest_weights(servers)[0] == Version(0, 30)
    # A learner that ends stops the others.
    assert ray.get(endless, timeout=120) > 0
    servers.close()
    wait_until(lambda: not processes_of("rollout", "train", "TaskCoordinator", "ParameterServer", "ReplayNode"))


def test_rollouts_keep_to_the_steps_of_the_run(start):
    servers = start(SMALL_SAC, "Pendulum-v1", actors=2, max_steps=500)
    tasks = start_tasks(servers)
    _, *steps = ray.get(tasks, timeout=300)
    # Less than a timestep of each rollout more.
    assert 500 <= sum(steps) == servers.status()["environment_steps"] < 500 + 2 * 2


def test_saved_weights_are_restored_and_a_run_is_resumed(start, tmp_path):
    servers = start(SMALL_SAC, "Pendulum-v1")
    ray.get([train.remote(servers, steps=10), rollout.remote(servers, 0)], timeout=300)
    _, before = newest_weights(servers)
    saved = tmp_path / "weights.npz"
    servers.save_weights(saved)
    with pytest.raises(CallboardError, match="could not be written to .*: No such file or directory"):
        servers.save_weights(tmp_path / "missing" / "weights.npz")
    servers.close()
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

    servers = start(from_values(Broken, SMALL), "Pendulum-v1")
    learner, *rollouts = start_tasks(servers)
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

    servers = start(from_values(Broken, SMALL), "Pendulum-v1")
    with pytest.raises(CallboardError, match="nothing to replay"):
        ray.get(rollout.remote(servers, 0), timeout=300)


def test_an_invalid_experiment_is_refused_before_anything_starts(start, tmp_path):
    with pytest.raises(CallboardError, match="td3 has a deterministic policy"):
        start(TD3(), "CartPole-v1")
    with pytest.raises(CallboardError, match="is a URL; set a path, or use the launcher ray"):
        start_servers(Experiment(agent=SMALL_SAC, env="Pendulum-v1", run_dir="file:///tmp/x"))
    assert not list(tmp_path.iterdir())
