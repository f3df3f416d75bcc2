"""A3C: its gradient is that of A2C's loss, it is applied as it is, and how old it is shows."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tree
from gymnasium import spaces
from ppo_samples import CONTINUOUS, DISCRETE, layout_of
from recording_actor import Actor
from small_worlds import weights_of

from callboard.agents.a2c import A2C
from callboard.agents.a3c import A3C, A3CNetworks
from callboard.agents.metric_names import LEARNER_METRICS
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.data import Sample, Version
from callboard.environments import make
from callboard.errors import CallboardError
from callboard.replay import ReplayHandle, start_server
from callboard.settings.nested_settings import from_values

SETTINGS = {
    "unroll_length": 4,
    "entropy_cost": 0.3,
    "gae_lambda": 0.9,
    "optimizer.learning_rate": 0.1,
    "optimizer.epsilon": 1.0,
    "optimizer.learning_rate_decay": False,
    "network.head_sizes": (4,),
}
ENVS = 2


class Worker:
    """A worker and a learner, with networks of their own, on a real queue."""

    def __init__(self, agent: A3C, env: str, directory: Any):
        environment = make(env, ENVS, [1, 2], {})
        layout = layout_of(environment.spec, envs_per_actor=ENVS)
        self.networks: A3CNetworks = agent.make_networks(layout)
        self.layout = trace_layout(agent, layout, self.networks)
        self.server = start_server(agent.make_replay(self.layout).tables(), None, directory)
        replay = ReplayHandle(lambda: [f"localhost:{self.server.port}"])
        policy = CompiledPolicy(agent.make_policy(self.networks, "train"), self.layout, np.arange(ENVS), seed=1)
        self.actor = Actor(environment, policy, agent.make_writer(replay, self.layout, 0, self.networks))
        self.learned: A3CNetworks = agent.make_networks(layout)
        for new, old in zip(self.learned.variables, self.networks.variables, strict=True):
            new.assign(old)
        self.learner = agent.make_learner(self.learned, tf.distribute.get_strategy(), self.layout)
        self.items = iter(agent.make_replay(self.layout).dataset(replay, tf.distribute.InputContext()).dataset)

    def act(self, timesteps: int) -> None:
        for _ in range(timesteps):
            self.actor.step()
            assert self.actor.writer.ready(10.0, max_pending=0)


@pytest.fixture
def start(tmp_path):
    workers: list[Worker] = []

    def make_worker(agent: A3C, env: str) -> Worker:
        workers.append(Worker(agent, env, tmp_path / str(len(workers))))
        return workers[-1]

    yield make_worker
    for worker in workers:
        worker.actor.writer.close()
        worker.server.stop()


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "env, core", [("CartPole-v1", "lstm"), pytest.param("Pendulum-v1", "none", marks=pytest.mark.slow)]
)
def test_a_step_is_that_of_a2c_with_the_same_block(start, env, core):
    settings = {**SETTINGS, "network.core": core, "network.lstm_size": 3, "normalize_rewards": False}
    worker = start(from_values(A3C, settings), env)
    a2c = from_values(A2C, {**settings, "batch_size": ENVS})
    layout = worker.layout
    networks = a2c.make_networks(layout)
    before = weights_of(worker.networks.network)
    for new, old in zip(networks.network.variables, worker.networks.network.variables, strict=True):
        new.assign(old)
    records, states = [], []
    append = worker.actor.writer.append

    def also_here(record: Any, state: Any) -> None:
        records.append(record)
        states.append(tree.map_structure(np.asarray, state))
        append(record, state)

    worker.actor.writer.append = also_here
    worker.act(5)
    update = worker.learner.step(worker.items)
    rows = tree.map_structure(lambda *leaves: np.stack(leaves), *records)
    chosen = tree.map_structure(lambda leaf: leaf[:4], rows)
    sample = Sample(chosen._replace(observation=rows.observation, first=rows.first, last=rows.last), states[0])
    expected = a2c.make_learner(networks, tf.distribute.get_strategy(), layout).step(iter([sample]))
    assert not np.allclose(weights_of(worker.learned.network), before, atol=1e-4)
    np.testing.assert_allclose(weights_of(worker.learned.network), weights_of(networks.network), rtol=1e-4, atol=1e-6)
    for name in update.metrics.keys() & expected.metrics.keys():
        np.testing.assert_allclose(update.metrics[name], expected.metrics[name], rtol=1e-4, err_msg=name)
    # The worker's own weights stay as they were, statistics included, until it fetches others.
    np.testing.assert_array_equal(weights_of(worker.networks.network), before)
    registered = {metric.name for metric in LEARNER_METRICS if not metric.agents or "a3c" in metric.agents}
    assert set(update.metrics) == registered and set(update.finite) == {"loss", "gradient_norm"}


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_staleness_is_the_age_of_the_gradients_weights(start):
    worker = start(from_values(A3C, SETTINGS), "CartPole-v1")
    for step in range(2 * SETTINGS["unroll_length"] + 1):
        worker.actor.version = Version(0, step)
        worker.act(1)
    worker.learner.steps.assign(20)
    first, second = (worker.learner.step(worker.items).metrics for _ in range(2))
    # Weights of the steps 0 to 3 acted in the first block, and 4 to 7 in the second one.
    assert (first["gradient_staleness"], first["policy_lag"]) == (17, 18.5)
    assert (second["gradient_staleness"], second["policy_lag"]) == (14, 15.5)
    assert int(worker.learner.steps.numpy()) == 22


class TwoSteps(gym.Env):
    """Episodes of two steps, cut off by a time limit."""

    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 1.0, False, self.time == 2, {}


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_the_lag_is_a_mean_over_valid_transitions(start):
    worker = start(from_values(A3C, {**SETTINGS, "unroll_length": 3}), TwoSteps)
    for step in (0, 1, 5, 2, 3, 4, 4):
        worker.actor.version = Version(0, step)
        worker.act(1)
    worker.learner.steps.assign(10)
    first, second = (worker.learner.step(worker.items).metrics for _ in range(2))
    # The third timestep of each block is an episode's last one.
    assert (first["gradient_staleness"], first["policy_lag"]) == (5, 9.5)
    assert (second["gradient_staleness"], second["policy_lag"]) == (7, 8.5)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_workers_use_the_weight_of_the_entropy_and_the_deviation_of_returns_that_the_learner_has(start):
    tf.keras.utils.set_random_seed(3)  # The first values, which the loss is of, are small.
    agent = from_values(A3C, {**SETTINGS, "normalize_rewards": True})
    worker = start(agent, "CartPole-v1")
    policy = agent.make_policy(worker.networks, "train")
    fetched = {id(variable) for variable in policy.variables}
    assert {id(one) for one in (worker.networks.entropy_cost, *worker.networks.returns.variables)} <= fetched
    # A deviation of 1e4, with which rewards of 1 are next to nothing.
    worker.networks.returns.update(tf.constant([[-1e4, 1e4]]))
    worker.networks.entropy_cost.assign(0.7)
    worker.act(5)
    item = next(worker.items)
    loss, entropy, policy_loss, _, _, value_loss = item.metrics.numpy()
    np.testing.assert_allclose(loss, policy_loss + agent.value_cost * value_loss - 0.7 * entropy, rtol=1e-4)
    assert value_loss < 0.1
    worker.learned.entropy_cost.assign(0.0)
    worker.learner.step(iter([item]))
    expected = np.cumsum(0.99 ** np.arange(4))[:, np.newaxis].repeat(ENVS, 1)
    np.testing.assert_allclose(item.discounted_return, expected, rtol=1e-5)
    np.testing.assert_allclose(worker.learned.returns.deviations(1), [expected.std()], rtol=1e-4)
    assert float(worker.learned.entropy_cost) == pytest.approx(agent.entropy_cost)


@pytest.mark.parametrize(
    "settings, layout, message",
    [
        ({}, {"replicas": 2}, "needs one learner device, not 2: set learners to 1"),
        ({}, {"max_steps": 19}, "max_steps = 19 are fewer than the 20 of one block"),
        # Two agents in each of three environments.
        ({}, {"max_steps": 14, "envs_per_actor": 6, "agents_per_env": 2}, "14 are fewer than the 15 of one block"),
        ({"network.torso": "nature"}, {}, "torso 'nature' is for images"),
        ({"network.torso": "resnet8"}, {}, "a3c does not train the statistics of batch normalization"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, layout, message):
    with pytest.raises(CallboardError) as caught:
        from_values(A3C, settings).check(layout_of(DISCRETE, **layout))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_defaults_fit_any_number_of_environments():
    for spec in (DISCRETE, CONTINUOUS):
        A3C().check(layout_of(spec, actors=3, envs_per_actor=7))
    A3C().check(layout_of(DISCRETE, max_steps=15, envs_per_actor=6, agents_per_env=2))
