"""An agent's actor and learner run on the parts for Ray as they are, also while Ray starts a server again."""

import contextlib
import shutil
import tempfile
import time

import numpy as np
import psutil
import pytest
import ray

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.agents.sac import Sac
from callboard.agents.weights import WeightClient, pack_weights
from callboard.data import Version
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.launchers.ray import part_clients as clients
from callboard.launch.launchers.ray import part_servers as servers
from callboard.launch.launchers.ray.parts import RemoteWeights, replay_handle, rollout, start_parts, train
from callboard.nested_settings import from_values


def test_a_parameter_server_gives_the_newest_weights_to_those_who_have_others():
    server = servers.ParameterServer()
    assert server.get_variables(None) is None
    first = server.begin()
    server.publish((first, 0), np.zeros(2))
    version, packed = server.get_variables(None)
    assert version == (first, 0) and packed.tolist() == [0, 0]
    # As a version arrives that has traveled as a list.
    assert server.get_variables([first, 0]) is None
    server.publish((first, 7), np.ones(2))
    assert server.get_variables((first, 0))[0] == (first, 7)


def test_a_learner_that_begins_anew_is_newer_than_the_one_before():
    server = servers.ParameterServer()
    first, second = server.begin(), server.begin()
    server.publish((second, 0), np.ones(1))
    # The learner before may still have had a call on its way.
    server.publish((first, 900), np.zeros(1))
    assert server.get_variables(None)[0] == (second, 0)


def test_a_parameter_server_that_was_restarted_learns_which_learners_there_were():
    server = servers.ParameterServer()
    server.publish((5, 12), np.ones(1))
    assert server.begin() == 6


def test_progress_adds_up_over_starts_and_not_over_reports():
    progress = servers.Progress(max_steps=100)
    assert not progress.report_rollout("0/a", 40, [1.0])
    assert not progress.report_rollout("0/a", 40, [])
    assert not progress.report_rollout("1/b", 50, [2.0, 6.0])
    totals = progress.totals()
    assert totals.environment_steps == 90 and totals.episodes == 3 and totals.episode_return == 3.0
    # Rollout 0 was started again: what it did before has been done.
    assert progress.report_rollout("0/c", 10, [])
    assert progress.report_learner(3, {"loss": 0.5})
    assert progress.totals().metrics == {"loss": 0.5} and progress.totals().learner_steps == 3


def test_rollouts_that_start_again_are_numbered():
    progress = servers.Progress()
    starts = [(0, "a"), (0, "a"), (1, "b"), (0, "c"), (0, "c"), (0, "d")]
    assert [progress.begin_rollout(*start) for start in starts] == [0, 0, 0, 1, 1, 2]


def test_progress_stops_without_a_limit_only_when_told_to():
    progress = servers.Progress()
    assert not progress.report_rollout("0/a", 10**9, [])
    progress.stop()
    assert progress.report_rollout("0/a", 10**9, []) and progress.report_learner(0, {})


def test_learners_meet_in_the_order_of_their_ranks():
    progress = servers.Progress()
    assert progress.meet(1, "second", "b:2", 2) is None
    assert progress.meet(0, "first", "a:1", 2) == ["a:1", "b:2"] == progress.meet(1, "second", "b:2", 2)
    # An answer may be lost, and asked for again; those who are started later wait for each other.
    assert progress.meet(0, "first", "a:1", 2) == ["a:1", "b:2"]
    assert progress.meet(0, "third", "a:1", 2) is None
    assert progress.meet(1, "fourth", "c:3", 2) == ["a:1", "c:3"] == progress.meet(0, "third", "a:1", 2)


def test_a_learner_that_falls_silent_ends_the_others(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(servers.time, "monotonic", lambda: now)
    progress = servers.Progress()
    # A learner of one's own need not report.
    now += 1000.0
    assert not progress.report_rollout("0/a", 1, []) and not progress.learning_has_ended()
    assert not progress.report_learner(3, {}, short_of_data=2.5)
    assert progress.seconds_short_of_data() == 2.5
    now += 59.0
    assert not progress.report_rollout("0/a", 1, []) and not progress.learning_has_ended()
    progress.report_learner(3, {})
    now += 59.0
    assert not progress.report_rollout("0/a", 1, []) and progress.seconds_short_of_data() == 0.0
    now += 2.0
    assert progress.report_rollout("0/a", 1, []) and progress.learning_has_ended() and progress.totals().stopping


@pytest.fixture(scope="module")
def cluster():
    # Ray's sockets lie in it: their paths must be short.
    directory = tempfile.mkdtemp(prefix="r")
    ray.init(
        num_cpus=6, include_dashboard=False, object_store_memory=200 * 2**20, _temp_dir=directory, log_to_driver=False
    )
    yield
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


def experiment_of(agent, env, actors=1, **settings):
    return Experiment(agent=agent, env=env, actors=actors, envs_per_actor=2, **settings)


SMALL_SAC = from_values(
    Sac,
    {
        "batch_size": 32,
        "replay.min_size": 100,
        "replay.size": 10_000,
        "replay.samples_per_insert": 8,
        "network.hidden_sizes": (16,),
    },
)
SMALL_APEX = from_values(
    Apex,
    {
        "batch_size": 32,
        "replay.min_size": 100,
        "replay.size": 10_000,
        "replay.samples_per_insert": 8,
        "network.hidden_sizes": (16,),
    },
)
SMALL_PPO = Ppo(unroll_length=16, batch_size=4, epochs=2, minibatches=2)


def wait_until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run_until_learner_steps(parts, tasks, steps):
    def reached():
        done, _ = ray.wait(tasks, timeout=0)
        ray.get(done)
        return totals_of(parts).learner_steps >= steps

    wait_until(reached)


def start_tasks(parts):
    experiment = parts.experiment
    return [train.remote(parts, rank) for rank in range(experiment.learners)] + [
        rollout.remote(parts, index) for index in range(experiment.actors)
    ]


def end(parts, tasks):
    """Stops all tasks, and gives what they return."""
    ray.get(parts.progress.stop.remote(), timeout=30)
    results = ray.get(tasks, timeout=60)
    for actor in (parts.weights, parts.progress, *parts.replay):
        ray.kill(actor)
    return results


def totals_of(parts):
    return ray.get(parts.progress.totals.remote(), timeout=30)


def sizes_of(parts):
    return ray.get([server.sizes.remote() for server in parts.replay], timeout=30)


def newest_weights(parts):
    experiment = parts.experiment
    policy = experiment.agent.make_policy(experiment.agent.make_networks(parts.layout), "evaluate")
    client = WeightClient(RemoteWeights(parts.weights), policy.variables)
    client.fetch()
    assert client.apply()
    return client.version, [variable.numpy() for variable in policy.variables]


def published_incarnation(parts):
    """Of the newest weights; None while there are none, or their server is on its way up."""
    try:
        snapshot = RemoteWeights(parts.weights).get_variables(None)
    except clients.UNREACHABLE:
        return None
    return None if snapshot is None else snapshot[0][0]


def rollout_processes():
    """Those of this test's own cluster."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name().startswith("ray::rollout") and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


@pytest.mark.slow
def test_sac_learns_on_the_parts_also_when_ray_starts_servers_and_a_rollout_again(cluster):
    parts = start_parts(experiment_of(SMALL_SAC, "Pendulum-v1", actors=2))
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 1)
    early, before = newest_weights(parts)
    run_until_learner_steps(parts, tasks, 20)
    version, after = newest_weights(parts)
    assert version > early and version.incarnation == 1
    assert any((old != new).any() for old, new in zip(before, after, strict=True))

    ray.get(parts.weights.publish.remote((99, 0), pack_weights(after)), timeout=30)
    assert published_incarnation(parts) == 99
    ray.kill(parts.weights, no_restart=False)
    # A server that was started again knows nothing of that, and is told once more by the learner that there is.
    wait_until(lambda: published_incarnation(parts) == 1)

    handle = replay_handle(parts.replay)
    incarnation = handle.incarnation(0)
    ray.kill(parts.replay[0], no_restart=False)
    wait_until(lambda: handle.incarnation(0) != incarnation)
    steps = totals_of(parts).learner_steps
    # Learning continues with what the same tasks write to the new server.
    run_until_learner_steps(parts, tasks, steps + 50)
    assert sizes_of(parts)[0]["replay"] >= 100

    victim = rollout_processes()[0]
    victim.kill()
    wait_until(lambda: len(set(rollout_processes()) - {victim}) == 2)

    totals = totals_of(parts)
    learner_steps, *rollouts = end(parts, tasks)
    assert learner_steps >= steps + 50 and totals.environment_steps > 0 and len(rollouts) == 2
    assert np.isfinite(list(totals.metrics.values())).all() and totals.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env", "settings"),
    [
        (SMALL_SAC, "Pendulum-v1", {"actors": 2, "replay_shards": 2, "learners": 2}),
        (SMALL_PPO, "CartPole-v1", {}),
    ],
    ids=["two shards and two learners", "an agent that holds its actors back"],
)
def test_learners_and_shards_may_be_several_and_actors_held_back(cluster, agent, env, settings):
    parts = start_parts(experiment_of(agent, env, **settings))
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 10)
    if agent is SMALL_SAC:
        # Each shard gets its actor's transitions.
        wait_until(lambda: all(size["replay"] >= 50 for size in sizes_of(parts)))
    assert newest_weights(parts)[0] > Version(1, 0)
    assert end(parts, tasks)[0] >= 10


@pytest.mark.slow
def test_priorities_go_back_to_the_replay_server(cluster):
    parts = start_parts(experiment_of(SMALL_APEX, "CartPole-v1"))
    tasks = start_tasks(parts)
    run_until_learner_steps(parts, tasks, 20)
    client = replay_handle(parts.replay).client()
    wait_until(lambda: len(priorities_by_key(client)) > 100)
    before = priorities_by_key(client)
    # Who writes an item never touches it again.
    wait_until(lambda: changed(before, priorities_by_key(client)) > 10)
    end(parts, tasks)


def priorities_by_key(client):
    samples = client.sample("replay", 200, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def changed(before, after):
    return sum(before[key] != after[key] for key in before.keys() & after.keys())


@pytest.mark.slow
def test_a_rollout_ends_after_its_timesteps_and_a_learner_after_its_steps(cluster):
    parts = start_parts(experiment_of(SMALL_SAC, "Pendulum-v1"))
    learner = train.remote(parts, steps=30)
    # Two environments, and no reset within 40 timesteps.
    assert ray.get(rollout.remote(parts, 0, timesteps=40), timeout=120) == 80
    endless = rollout.remote(parts, 1)
    assert ray.get(learner, timeout=120) == 30
    assert newest_weights(parts)[0] == Version(1, 30)
    # A learner that ends tells the others.
    assert ray.get(endless, timeout=60) > 0
    end(parts, [])


@pytest.mark.slow
def test_the_learners_error_reaches_who_waits_for_it_and_ends_the_rollouts(cluster):
    class Broken(Sac):
        def loss(self, networks, sample, seed):
            raise CallboardError("nothing to lose")

    agent = from_values(
        Broken,
        {
            "batch_size": 32,
            "replay.min_size": 100,
            "replay.size": 10_000,
            "replay.samples_per_insert": 8,
            "network.hidden_sizes": (16,),
        },
    )
    parts = start_parts(experiment_of(agent, "Pendulum-v1"))
    learner, *rollouts = start_tasks(parts)
    with pytest.raises(CallboardError, match="nothing to lose"):
        ray.get(learner, timeout=120)
    assert sum(ray.get(rollouts, timeout=60)) > 0
    end(parts, [])


@pytest.mark.slow
def test_what_cannot_work_is_refused_before_anything_starts(cluster):
    with pytest.raises(CallboardError, match="sac has a Gaussian policy"):
        start_parts(experiment_of(SMALL_SAC, "CartPole-v1"))
