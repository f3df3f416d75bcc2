"""Ape-X: what it refuses, how it explores, its loss against a loop over numbers, and its way through replay."""

import functools
import json
import pathlib
from typing import Any

import numpy as np
import pytest
import small_worlds
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from recording_actor import Actor
from small_worlds import ACTIONS, SPEC, Corridor, weights_of

from callboard.agents.apex import Apex, ApexExtras
from callboard.agents.policies.acting import CompiledPolicy, timestep_spec, trace_layout
from callboard.data import ItemInfo, Record, Sample
from callboard.environments import GymnasiumBatch
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.run import run
from callboard.networks.network import Inputs
from callboard.replay import BatchReader, Elements, PriorityUpdater, ReplayHandle, start_server
from callboard.settings.nested_settings import from_values
from callboard.specs import zeros

layout_of = functools.partial(small_worlds.layout_of, actors=2, max_steps=1000)
SMALL: dict[str, Any] = {
    "normalize_rewards": False,
    "batch_size": 8,
    "updates_per_call": 1,
    "replay.size": 500,
    "replay.min_size": 20,
    "network.hidden_sizes": (16,),
    "network.stream_size": 0,
    "network.normalize_observations": False,
    "huber": None,
    "optimizer.learning_rate": 1e-3,
    "optimizer.learning_rate_decay": False,
}


def q_of(network: Any, observation: Any) -> np.ndarray:
    return network.step(Inputs(observation), (), np.zeros(len(observation), bool))[0].numpy()


# What is refused.


@pytest.mark.parametrize(
    "changed, layout, message",
    [
        ({}, dict(spec=SPEC._replace(action=dm_specs.BoundedArray((1,), np.float32, -1, 1))), "one discrete action"),
        ({"replay.size": 4, "replay.min_size": 2}, {}, "a replay of 4 items .* smaller than a batch of 8"),
        (
            {"replay.error_buffer": 9.0},
            {},
            "agent.replay.error_buffer of 9 cannot keep 32 samples per insert.* at least 72",
        ),
        (
            {"replay.error_buffer": float("nan")},
            {},
            "agent.replay.error_buffer must be a number above 0 or null, not nan",
        ),
        ({"replay.samples_per_insert": -1.0}, {}, "agent.replay.samples_per_insert must be a number above 0"),
        (dict(n_step=0), {}, "agent.n_step must be a whole number of at least 1"),
        (dict(target_update_period=0), {}, "agent.target_update_period must be a whole number of at least 1"),
        ({"replay.importance_exponent": 1.5}, {}, "agent.replay.importance_exponent must be a number from 0 to 1"),
        (dict(epsilon_alpha=-1.0), {}, "agent.epsilon_alpha must be a number of at least 0, not -1.0"),
        ({"network.stream_size": -1}, {}, "agent.network.stream_size must be a whole number of at least 0, not -1"),
        (
            {"network.hidden_sizes": (16, 0)},
            {},
            r"agent.network.hidden_sizes must be a list of whole numbers from 1 to 65,536, .* not \(16, 0\)",
        ),
        (
            {"optimizer.learning_rate": 0.0},
            {},
            "agent.optimizer.learning_rate must be a number above 0 or a schedule .*, not 0.0",
        ),
        ({"optimizer.epsilon": float("nan")}, {}, "agent.optimizer.epsilon must be a number above 0, not nan"),
        (
            {"optimizer.max_gradient_norm": -1.0},
            {},
            "agent.optimizer.max_gradient_norm must be a number above 0 or null, not -1.0",
        ),
        (dict(reward_clip=0.0), {}, "agent.reward_clip must be a number above 0, a list .* or null, not 0.0"),
        (dict(frame_stack=4), {}, "set agent.frame_stack to 1"),
        ({}, dict(replicas=3), "make agent.batch_size a multiple of 3"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(changed, layout, message):
    from_values(Apex, SMALL).check(layout_of())
    with pytest.raises(CallboardError, match=message) as raised:
        from_values(Apex, {**SMALL, **changed}).check(layout_of(**layout))
    assert "\n" not in str(raised.value)


# How it acts.


@pytest.mark.slow("daily")
def test_every_slot_explores_at_its_own_rate():
    agent = from_values(Apex, {**SMALL, "epsilon": 0.8, "epsilon_alpha": 3.0})
    networks = agent.make_networks(layout_of())
    act = tf.function(agent.make_policy(networks, "train"), autograph=False)
    timestep = zeros(timestep_spec(layout_of(), 2))
    greedy = q_of(networks.online, timestep.observation).argmax(axis=-1)
    # The second actor has the slots 2 and 3 of 4.
    actions = np.array([act(timestep, (), tf.constant([2, 3]), tf.constant([1, seed]))[0] for seed in range(1000)])
    expected = [0.8 ** (1 + 3 * slot / 3) * (1 - 1 / ACTIONS) for slot in (2, 3)]
    np.testing.assert_allclose((actions != greedy).mean(axis=0), expected, atol=0.05)


def test_an_evaluation_does_not_explore():
    agent = from_values(Apex, {**SMALL, "epsilon": 1.0, "epsilon_alpha": 0.0})
    networks = agent.make_networks(layout_of())
    policy = CompiledPolicy(agent.make_policy(networks, "evaluate"), layout_of(), np.arange(2), seed=1)
    timestep = zeros(timestep_spec(layout_of(), 2))
    greedy = q_of(networks.online, timestep.observation).argmax(axis=-1)
    for _ in range(20):
        np.testing.assert_array_equal(policy(timestep)[0], greedy)


# The loss.


def random_windows(agent: Apex, batch: int, seed: int = 0, counted: Any = True) -> Sample:
    """Windows that hold whole and ended episodes of every kind; those that are not `counted` begin with a reset."""
    rng = np.random.default_rng(seed)
    n = agent.n_step
    # How an episode ends in a window, if it does: by termination, at a time limit, or cut off with its last observation
    # lost; and with libraries that reset in the same step, by a termination after which the next one is first.
    kind, at = rng.integers(5, size=batch), rng.integers(n, size=batch)
    first, last = np.zeros((n + 1, batch), bool), np.zeros((n + 1, batch), bool)
    discount = np.ones((n, batch), np.float32)
    for b in range(batch):
        if kind[b] in (1, 2):
            discount[at[b], b] = kind[b] - 1
            last[at[b] + 1, b] = True
            first[at[b] + 2 : at[b] + 3, b] = True
        elif kind[b] in (3, 4):
            discount[at[b], b] = kind[b] - 3
            first[at[b] + 1, b] = True
    ignored = ~np.broadcast_to(counted, batch)
    last[0] = ignored
    first[1] |= ignored
    record = Record(
        observation=rng.normal(size=(n + 1, batch, 2)).astype(np.float32),
        first=first,
        last=last,
        action=rng.integers(ACTIONS, size=(n, batch)).astype(np.int32),
        reward=3 * rng.normal(size=(n, batch)).astype(np.float32),
        discount=discount,
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


@pytest.fixture
def double_precision():
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


def loss_of_windows(agent: Apex, weights: Any, target_weights: Any, sample: Sample) -> tuple[float, Any, list[float]]:
    """Loss, its gradient, and priorities, of a linear network, window by window and step by step.

    Horgan et al. 2018, section 3.1 and algorithm 2; Schaul et al. 2016, section 3.4; van Hasselt et al. 2016.
    """
    record, info = sample.record, sample.info
    kernel, bias = weights
    batch = record.action.shape[1]
    correction = [(1 / (info.items[b] * info.probability[b])) ** agent.replay.importance_exponent for b in range(batch)]
    loss, gradient, priorities = 0.0, [np.zeros_like(kernel), np.zeros_like(bias)], []
    for b in range(batch):
        target, factor, t = 0.0, 1.0, 0
        while t < agent.n_step:
            cut_off = record.first[t + 1, b] and record.discount[t, b] != 0
            if record.last[t, b] or cut_off:
                break
            reward = float(record.reward[t, b])
            if isinstance(agent.reward_clip, float):
                reward = min(max(reward, -agent.reward_clip), agent.reward_clip)
            target += factor * reward
            factor *= agent.discount * float(record.discount[t, b])
            t += 1
            if factor == 0:
                break
        if t == 0:
            priorities.append(0.0)
            continue
        x, x_n = record.observation[0, b].astype(np.float64), record.observation[t, b].astype(np.float64)
        if factor and not agent.munchausen:
            best = int(np.argmax(x_n @ kernel + bias))
            target += factor * (x_n @ target_weights[0] + target_weights[1])[best]
        action = record.action[0, b]
        if agent.munchausen:
            tau = agent.munchausen_temperature

            def scaled_log_policy(x: np.ndarray, tau: float = tau) -> tuple[np.ndarray, np.ndarray]:
                q = x @ target_weights[0] + target_weights[1]
                return q, tau * np.log(np.exp(q / tau) / np.exp(q / tau).sum())

            target += agent.munchausen * min(0.0, max(-agent.munchausen_clip, scaled_log_policy(x)[1][action]))
            if factor:
                q, scaled = scaled_log_policy(x_n)
                target += factor * sum(np.exp(scaled[a] / tau) * (q[a] - scaled[a]) for a in range(ACTIONS))
        delta = target - (x @ kernel + bias)[action]
        weight = correction[b] / max(correction)
        size = abs(delta)
        if agent.huber is not None and size > agent.huber:
            loss += weight * agent.huber * (size - agent.huber / 2) / batch
            slope = agent.huber * np.sign(delta)
        else:
            loss += weight * delta**2 / 2 / batch
            slope = delta
        gradient[0][:, action] -= weight * slope * x / batch
        gradient[1][action] -= weight * slope / batch
        priorities.append(size)
    return loss, gradient, priorities


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "n_step, reward_clip, huber, munchausen",
    [(1, None, None, 0.0), (3, None, 1.0, 0.0), (4, 1.0, None, 0.0), (1, None, None, 0.9), (3, None, 1.0, 0.9)],
)
def test_the_loss_is_that_of_the_paper(double_precision, n_step, reward_clip, huber, munchausen):
    agent = from_values(
        Apex,
        {
            "n_step": n_step,
            "normalize_rewards": False,
            "batch_size": 60,
            "reward_clip": reward_clip,
            "huber": huber,
            "munchausen": munchausen,
            "munchausen_temperature": 0.5,
            "discount": 0.9,
            "network.hidden_sizes": (),
            "network.dueling": False,
            "network.stream_size": 0,
            "network.normalize_observations": False,
        },
    )
    networks = agent.make_networks(layout_of())
    rng = np.random.default_rng(1)
    for variable in networks.variables:
        variable.assign(rng.normal(size=variable.shape))
    sample = random_windows(agent, 60, counted=np.arange(60) % 7 > 0)
    with tf.GradientTape() as tape:
        loss, _, priorities = agent.loss(networks, tree.map_structure(tf.constant, sample))
    gradient = tape.gradient(loss, networks.trainable_variables, unconnected_gradients="zero")

    def linear(module: tf.Module, values: Any) -> list[np.ndarray]:
        parts = {id(v): np.asarray(value) for v, value in zip(networks.trainable_variables, values, strict=True)}
        return sorted((parts[id(v)] for v in module.trainable_variables), key=lambda part: -part.ndim)

    values = [variable.numpy() for variable in networks.trainable_variables]
    expected = loss_of_windows(agent, linear(networks.online, values), linear(networks.target, values), sample)
    assert expected[0] > 0.1 and 9 < expected[2].count(0.0) < 30
    np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
    np.testing.assert_allclose(priorities, expected[2], rtol=1e-5, atol=1.1e-6)
    for found, of_loop in zip(linear(networks.online, gradient), expected[1], strict=True):
        np.testing.assert_allclose(found, of_loop, rtol=1e-5, atol=1e-8)
    assert all((part == 0).all() for part in linear(networks.target, gradient))


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


def test_first_priorities_with_the_bonus_of_munchausen_and_normalized_rewards_by_hand():
    agent = Apex(n_step=1, discount=0.5, munchausen=0.9, normalize_rewards=True)
    record = Record(
        observation=(),
        first=np.zeros((2, 2), bool),
        last=np.zeros((2, 2), bool),
        action=np.zeros((1, 2), np.int32),
        reward=np.array([[6.0, 100.0]], np.float32),
        discount=np.ones((1, 2), np.float32),
        # The second action is far from the best, so that its bonus is clipped.
        extras=ApexExtras(
            value=np.array([[1.5, -3.0]] * 2),
            best=np.array([[2.0, 2.0], [8.0, 4.0]]),
            return_deviation=np.full((2, 2), 3.0),
        ),
        version=np.zeros((1, 2, 2), np.int32),
    )
    expected = [2 + 0.5 * 8 - 0.9 * 0.5 - 1.5, 10 + 0.5 * 4 - 0.9 + 3.0]
    np.testing.assert_allclose(agent.first_priority(record), expected, rtol=1e-5)


def test_munchausen_is_for_one_choice():
    several = SPEC._replace(action=(dm_specs.DiscreteArray(2), dm_specs.DiscreteArray(3)))
    with pytest.raises(CallboardError, match=r"one discrete choice, but .*: set agent.munchausen to 0$"):
        from_values(Apex, {**SMALL, "munchausen": 0.9}).check(layout_of(several))


# Its way through replay.


class Loop:
    """Four corridors, whose right ends pay, an actor, a real replay server and a learner, that take turns."""

    def __init__(self, agent: Apex, directory: pathlib.Path) -> None:
        environment = GymnasiumBatch([Corridor((8, 8), 5, 12, [0] * 5 + [1]) for _ in range(4)], [1, 2, 3, 4])
        layout = layout_of(environment.spec, envs_per_actor=4, actors=1)
        agent.check(layout)
        tf.keras.utils.set_random_seed(1)
        strategy = tf.distribute.get_strategy()
        self.agent = agent
        self.networks = agent.make_networks(layout)
        self.learner = agent.make_learner(self.networks, strategy, layout)
        layout = trace_layout(agent, layout, self.networks)
        self.server = start_server(agent.make_replay(layout).tables(), None, directory)
        self.replay = ReplayHandle(lambda: [f"localhost:{self.server.port}"])
        policy = CompiledPolicy(agent.make_policy(self.networks, "train"), layout, np.arange(4), seed=1)
        self.actor = Actor(environment, policy, agent.make_replay(layout).writer(self.replay, 0))
        dataset = agent.make_replay(layout).dataset(self.replay, tf.distribute.InputContext()).dataset
        self.batches = BatchReader(lambda: Elements(dataset), stopped=lambda: False)
        self.sampled = 0

    def act(self) -> None:
        self.actor.step()
        assert self.actor.writer.ready(10, max_pending=0)

    def may_learn(self) -> bool:
        """Whether a batch more would not be more than `samples_per_insert` for what has been inserted."""
        agent, inserted = self.agent, self.actor.writer.items_written
        if inserted < agent.replay.min_size:
            return False
        first = agent.replay.min_size
        return self.sampled + agent.batch_size <= (inserted - first) * agent.replay.samples_per_insert

    def learn(self) -> Any:
        self.sampled += self.agent.batch_size
        return self.learner.step(self.batches)

    def close(self) -> None:
        self.batches.close()
        self.server.stop()


PIXELS: dict[str, Any] = {
    **SMALL,
    "batch_size": 32,
    "frame_stack": 4,
    "network.torso": "mlp",
    "discount": 0.9,
    "updates_per_call": 1,
    "replay.sampled_together": 1,
}


@pytest.mark.slow("daily")
def test_the_learner_finds_the_priorities_that_actors_gave(tmp_path):
    """With the weights that the actor had, from the stacks of pictures as they come out of replay."""
    loop = Loop(from_values(Apex, {**PIXELS, "n_step": 5, "replay.error_buffer": 1e6}), tmp_path)
    while loop.actor.writer.items_written < 150:
        loop.act()
    samples = loop.replay.client().sample("replay", 500, emit_timesteps=False)
    first = {sample.info.key: sample.info.priority for sample in samples}
    found = {}
    for _ in range(10):
        batch = next(loop.batches)
        priorities = loop.agent.loss(loop.networks, batch).priorities
        found |= zip(batch.info.key.numpy().tolist(), priorities.numpy().tolist(), strict=True)
    loop.close()
    both = sorted(first.keys() & found.keys())
    assert len(both) > 50 and np.std([first[key] for key in both]) > 0.05
    np.testing.assert_allclose([found[key] for key in both], [first[key] for key in both], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_pixels_are_learned_from(tmp_path):
    """In the end the values distinguish right from left; replay cannot be seeded, so it may take more steps or
    fewer."""
    loop = Loop(
        from_values(
            Apex,
            {
                **{**PIXELS, "optimizer.learning_rate": 3e-3},
                "target_update_period": 10,
                "replay.samples_per_insert": 16.0,
            },
        ),
        tmp_path,
    )
    updater = PriorityUpdater(loop.replay, "replay")
    # Stacks of a walk to the right.
    pictures = np.zeros((6, 8, 8, 4), np.uint8)
    for position in range(6):
        for age in range(4):
            pictures[position, :, max(0, position - age), 3 - age] = 255

    def knows_the_way():
        q = q_of(loop.networks.online, pictures)
        return (q[:5, 1] > q[:5, 0]).all() and abs(q[4, 1] - 1) < 0.25

    for _ in range(10):
        for _ in range(100):
            loop.act()
            while loop.may_learn():
                update = loop.learn()
                updater.submit(update.priorities)
                assert updater.wait(10)
        if loop.sampled > 8_000 and knows_the_way():
            break
    assert knows_the_way()
    assert updater.counts() == (loop.sampled // 32, 0)
    assert all(np.isfinite(float(value)) for value in update.metrics.values())
    updater.close()
    loop.close()


@pytest.mark.slow("daily")
def test_inline_takes_turns_however_far_the_learner_might_run_ahead(tmp_path):
    experiment = Experiment(
        agent=from_values(Apex, {**SMALL, "replay.samples_per_insert": 2.0, "replay.error_buffer": 10_000}),
        env="CartPole-v1",
        envs_per_actor=4,
        evaluator=False,
        max_steps=300,
        run_dir=tmp_path / "run",
    )
    assert run(experiment, launcher="inline").exit_code == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    # A window to almost every step, less those that wait for their last timesteps.
    assert 40 < last["learner_steps"] <= (last["environment_steps"] - 20) * 2 / 8 + 1


# The learner.


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_the_target_network_follows_at_times():
    agent = from_values(Apex, {**SMALL, "target_update_period": 3})
    networks = agent.make_networks(layout_of())
    assert not np.array_equal(weights_of(networks.online), weights_of(networks.target))
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout_of())
    batches = iter([tree.map_structure(tf.constant, random_windows(agent, 8, seed)) for seed in range(6)])
    before = weights_of(networks.online)
    np.testing.assert_array_equal(weights_of(networks.target), before)
    for step in range(1, 7):
        learner.step(batches)
        if step % 3 == 0:
            before = weights_of(networks.online)
        np.testing.assert_array_equal(weights_of(networks.target), before)
        assert step % 3 == 0 or np.abs(weights_of(networks.online) - before).max() > 0
