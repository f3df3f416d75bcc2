"""Ape-X: exploration, first and later priorities, what it refuses, its way through replay, and two replicas.

Run as a program it prints what two replicas do, since devices are set before TensorFlow starts.
"""

import json
import pathlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from callboard.agents.acting import Actor, CompiledPolicy, tick_spec, trace_layout
from callboard.agents.apex import Apex, ApexExtras
from callboard.data import CallboardError, ItemInfo, Layout, Record, Sample
from callboard.environments import GymnasiumBatch
from callboard.networks.network import Inputs
from callboard.replay import BatchReader, PriorityUpdater, ReplayHandle, start_server
from callboard.specs import EnvironmentSpec, zeros

ACTIONS = 3
SPEC = EnvironmentSpec(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(ACTIONS))
SMALL = dict(
    batch_size=8, replay_size=500, min_replay_size=20, hidden_sizes=(16,), optimizer="adam", learning_rate=1e-3
)


def layout_of(spec=SPEC, envs_per_actor=2, actors=2, **others):
    return Layout(
        **{
            **dict(
                spec=spec, envs_per_actor=envs_per_actor, actors=actors, shards=1, replicas=1, seed=1, max_steps=1000
            ),
            **others,
        }
    )


def windows(agent, batch, seed=0):
    """A sample of random windows, all of their lengths, some of which end in a termination."""
    rng = np.random.default_rng(seed)
    n = agent.n_step
    length = rng.integers(1, n + 1, batch)
    beyond = np.arange(n)[:, np.newaxis] >= length
    ended = (np.arange(n)[:, np.newaxis] == length - 1) & (rng.random(batch) < 0.3)
    record = Record(
        observation=rng.normal(size=(n + 1, batch, 2)).astype(np.float32),
        first=np.zeros((n + 1, batch), bool),
        last=np.concatenate([beyond, rng.random((1, batch)) < 0.5]),
        action=rng.integers(ACTIONS, size=(n, batch)).astype(np.int32),
        reward=np.where(beyond, 0, 3 * rng.normal(size=(n, batch))).astype(np.float32),
        discount=np.where(ended, 0, 1).astype(np.float32),
        extras=(),
        version=np.zeros((n, batch, 2), np.int32),
    )
    info = ItemInfo(
        key=np.arange(batch, dtype=np.uint64),
        shard=np.arange(batch, dtype=np.int32) % 2,
        probability=rng.uniform(0.001, 0.01, batch),
        items=np.full(batch, 400),
    )
    return Sample(record, (), info)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_learner_finds_the_priorities_that_the_actor_found(clip):
    """With the same weights in the network, the target network and the policy that acted."""
    agent = Apex(**SMALL, n_step=4, reward_clip=clip)
    networks = agent.make_networks(layout_of())
    agent.make_learner(networks, tf.distribute.get_strategy(), layout_of())
    sample = windows(agent, 64)
    q = np.stack([q_of(networks, row) for row in sample.record.observation])
    taken = np.take_along_axis(q[:-1], sample.record.action[..., np.newaxis], axis=-1)[..., 0]
    extras = ApexExtras(value=np.concatenate([taken, taken[-1:]]), best=q.max(axis=-1))
    first = agent.first_priority(sample.record._replace(observation=(), extras=extras))
    _, metrics = agent.loss(networks, tree.map_structure(tf.constant, sample))
    np.testing.assert_allclose(metrics["priority"], first, rtol=1e-4, atol=1e-5)
    assert np.std(first) > 0.1


def q_of(networks, observation):
    return networks.online.step(Inputs(observation), (), np.zeros(len(observation), bool))[0].numpy()


def test_first_priorities_by_hand():
    agent = Apex(n_step=2, discount=0.5)
    # A whole window, one that is cut off after a transition, and one that terminates in the second.
    record = Record(
        observation=(),
        first=np.zeros((3, 3), bool),
        last=np.array([[False, False, False], [False, True, False], [False, False, True]]),
        action=np.zeros((2, 3), np.int32),
        reward=np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 2.0]], np.float32),
        discount=np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32),
        extras=ApexExtras(value=np.full((3, 3), 0.5), best=np.array([[9.0] * 3, [9, 4, 9], [8, 9, 9]])),
        version=np.zeros((2, 3, 2), np.int32),
    )
    np.testing.assert_allclose(
        agent.first_priority(record), [1 + 0.5 * 2 + 0.25 * 8 - 0.5, 1 + 0.5 * 4 - 0.5, 1 + 0.5 * 2 - 0.5], rtol=1e-5
    )


def test_every_slot_explores_at_its_own_rate():
    agent = Apex(**SMALL, epsilon=0.8, epsilon_alpha=3.0)
    layout = layout_of()
    networks = agent.make_networks(layout)
    policy = agent.make_policy(networks, "train")
    act = tf.function(policy, autograph=False)
    tick = zeros(tick_spec(layout, 2))
    greedy = q_of(networks, tick.observation).argmax(axis=-1)
    # The second actor has the slots 2 and 3 of 4.
    actions = np.array([act(tick, (), tf.constant([2, 3]), tf.constant([1, seed]))[0] for seed in range(3000)])
    expected = [0.8 ** (1 + 3 * slot / 3) * (1 - 1 / ACTIONS) for slot in (2, 3)]
    np.testing.assert_allclose((actions != greedy).mean(axis=0), expected, atol=0.03)
    evaluated = agent.make_policy(networks, "evaluate")(tick, (), tf.constant([0, 1]), tf.constant([1, 1]))[0]
    np.testing.assert_array_equal(evaluated, greedy)


@pytest.mark.parametrize(
    ("changed", "layout", "message"),
    [
        ({}, dict(spec=SPEC._replace(action=dm_specs.BoundedArray((1,), np.float32, -1, 1))), "one discrete action"),
        (dict(replay_size=4, min_replay_size=2), {}, "a replay of 4 items .* smaller than a batch of 8"),
        (dict(error_buffer=9.0), {}, "agent.error_buffer of 9 cannot keep 8 samples per insert"),
        (dict(n_step=0), {}, "agent.n_step must be at least 1"),
        (dict(target_update_period=0), {}, "agent.target_update_period must be at least 1"),
        (dict(importance_exponent=1.5), {}, "agent.importance_exponent must lie between 0 and 1"),
        (dict(frame_stack=4), {}, "set agent.frame_stack to 1"),
        ({}, dict(shards=3), "set replay_shards to at most 2"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(changed, layout, message):
    Apex(**SMALL).check(layout_of())
    with pytest.raises(CallboardError, match=message) as raised:
        Apex(**{**SMALL, **changed}).check(layout_of(**layout))
    assert "\n" not in str(raised.value)


class Corridor(gymnasium.Env):
    """Pictures of a position from 0 to 5: right pays at the end, and time is up after 12 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self._position = self._time = 0
        return self._picture(), {}

    def step(self, action):
        self._time += 1
        self._position = max(0, self._position + (1 if action else -1))
        there = self._position == 5
        return self._picture(), float(there), there, self._time == 12, {}

    def _picture(self):
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[:, self._position] = 255
        return picture


def test_pixels_through_replay_and_back(tmp_path):
    """An actor, a real server, stacks and priorities: after some steps the values tell right from left."""
    agent = Apex(
        **{**SMALL, "batch_size": 32, "learning_rate": 3e-3},
        frame_stack=2,
        torso="mlp",
        target_update_period=10,
        samples_per_insert=16.0,
        discount=0.9,
    )
    environment = GymnasiumBatch([Corridor() for _ in range(4)], [1, 2, 3, 4])
    layout = layout_of(environment.spec, envs_per_actor=4, actors=1)
    agent.check(layout)
    tf.keras.utils.set_random_seed(1)
    strategy = tf.distribute.get_strategy()
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, strategy, layout)
    layout = trace_layout(agent, layout, networks)
    server = start_server(agent.make_tables(layout), None, tmp_path)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    policy = CompiledPolicy(agent.make_policy(networks, "train"), layout, np.arange(4), seed=1)
    actor = Actor(environment, policy, agent.make_writer(replay, layout, 0))
    reader = BatchReader(
        lambda: strategy.distribute_datasets_from_function(lambda c: agent.make_dataset(replay, layout, c).dataset),
        stopped=lambda: False,
    )
    updater = PriorityUpdater(replay, "replay")
    for tick in range(250):
        actor.step()
        while not actor.writer.ready(5, max_pending=0):
            pass
        for _ in range(2 if tick > 20 else 0):
            update = learner.step(reader)
            assert update.priorities.priority.shape == (32,)
            updater.offer(update.priorities)
    assert updater.wait(10) and updater.counts().dropped == 0
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    reader.close()
    server.stop()
    pictures = np.zeros((5, 8, 8, 2), np.uint8)
    for position in range(5):
        pictures[position, :, max(0, position - 1), 0] = pictures[position, :, position, 1] = 255
    q = q_of(networks, pictures)
    assert (q[:, 1] > q[:, 0]).all()
    assert q[4, 1] == pytest.approx(1, abs=0.25)


def weights_of(module):
    return np.concatenate([variable.numpy().ravel() for variable in module.variables])


def test_the_target_network_follows_at_times():
    agent = Apex(**SMALL, target_update_period=3)
    networks = agent.make_networks(layout_of())
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout_of())
    batches = iter([tree.map_structure(tf.constant, windows(agent, 8, seed)) for seed in range(6)])
    before = weights_of(networks.target)
    np.testing.assert_array_equal(before, weights_of(networks.online))
    for step in range(1, 7):
        learner.step(batches)
        if step % 3 == 0:
            before = weights_of(networks.online)
        np.testing.assert_array_equal(weights_of(networks.target), before)
        assert step % 3 == 0 or np.abs(weights_of(networks.online) - before).max() > 0


def one_update(replicas):
    """Weights, metrics and priorities after an update on the same global batch, whatever the number of replicas."""
    agent = Apex(**SMALL, n_step=2, max_gradient_norm=0.5)
    layout = layout_of(replicas=replicas)
    names = [f"CPU:{number}" for number in range(replicas)]
    strategy = tf.distribute.MirroredStrategy(names) if replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        tf.keras.utils.set_random_seed(3)
        networks = agent.make_networks(layout)
        learner = agent.make_learner(networks, strategy, layout)
    sample = windows(agent, 8)
    size = 8 // replicas
    shares = [
        Sample(
            tree.map_structure(lambda leaf, part=part: tf.constant(leaf[:, part]), sample.record),
            (),
            tree.map_structure(lambda leaf, part=part: tf.constant(leaf[part]), sample.info),
        )
        for part in (slice(number * size, (number + 1) * size) for number in range(replicas))
    ]
    batch = shares[0]
    if replicas > 1:
        batch = strategy.experimental_distribute_values_from_function(
            lambda context: shares[context.replica_id_in_sync_group]
        )
    update = learner.step(iter([batch]))
    return {
        "weights": weights_of(networks.online).tolist(),
        "metrics": {name: float(value) for name, value in update.metrics.items()},
        "priorities": [np.asarray(leaf).tolist() for leaf in update.priorities],
    }


def test_an_update_does_not_depend_on_the_number_of_replicas():
    output = subprocess.run(
        [sys.executable, pathlib.Path(__file__)], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    two, one = json.loads(output.splitlines()[-1]), one_update(1)
    np.testing.assert_allclose(two["weights"], one["weights"], atol=1e-6)
    assert two["metrics"].keys() == one["metrics"].keys()
    for name, value in one["metrics"].items():
        assert two["metrics"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    keys, shards, priorities = one["priorities"]
    assert keys == list(range(8)) and shards == [0, 1] * 4
    assert two["priorities"][:2] == [keys, shards]
    np.testing.assert_allclose(two["priorities"][2], priorities, rtol=1e-4)


if __name__ == "__main__":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(json.dumps(one_update(2)))
