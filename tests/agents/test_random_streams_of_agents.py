"""Every agent: no two uses of random numbers, in acting or in learning, have numbers that depend on each other."""

import numpy as np
import pytest
import tensorflow as tf
import update_on_replicas
from dm_env import specs as dm_specs
from slow_cases import slow_but

from callboard.agents.agent_names import AGENTS
from callboard.agents.learning.gradient_learner import GradientLearner
from callboard.agents.policies.acting import trace_layout
from callboard.agents.registry import agent_class
from callboard.data import Layout, Timestep
from callboard.networks import stateless_random
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

ROWS = 512
VECTOR, IMAGE = dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((12, 12, 1), np.uint8, 0, 255)
DISCRETE, BOX = dm_specs.DiscreteArray(3), dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0)
SMALL = {"batch_size": ROWS, "network.hidden_sizes": (4,)}
Q = {**SMALL, "updates_per_call": 1, "n_step": 2, "network.stream_size": 4}
CASES = {
    "impala": ({**SMALL, "unroll_length": 2}, VECTOR, (DISCRETE, BOX)),
    "ppo": (
        {"batch_size": ROWS, "unroll_length": 2, "network.autoregressive": True},
        VECTOR,
        (DISCRETE, DISCRETE, BOX),
    ),
    "a2c": ({**SMALL, "unroll_length": 2}, VECTOR, DISCRETE),
    "apex": ({**Q, "distribution": "implicit", "atoms": 2, "noisy": True, "munchausen": 0.9}, VECTOR, DISCRETE),
    "sac": (SMALL, VECTOR, (DISCRETE, BOX)),
    "drq": ({**SMALL, "frame_stack": 1, "network.filters": ((2, 3, 2),), "network.image_features": 2}, IMAGE, BOX),
    "cql": ({**SMALL, "action_samples": 2}, VECTOR, BOX),
    "td3": (SMALL, VECTOR, BOX),
    "d4pg": ({**SMALL, "n_step": 2, "atoms": 3}, VECTOR, BOX),
    "dmpo": ({**SMALL, "n_step": 2, "atoms": 3, "action_samples": 2}, VECTOR, BOX),
}


@pytest.fixture
def words(monkeypatch):
    """The random words of every call of a generator, uint64 `[rows, columns]`."""
    made, generate, categorical = [], stateless_random._bits, tf.random.stateless_categorical

    def recorded(seed, index, columns):
        words = generate(seed, index, columns)
        if tf.executing_eagerly():
            made.append(words.numpy())
        return words

    def recorded_choice(logits, num_samples, seed, **options):
        if tf.executing_eagerly():
            bounds = {"minval": None, "maxval": None, "dtype": tf.uint64}
            made.append(tf.random.stateless_uniform((len(logits), 1), seed, **bounds).numpy())
        return categorical(logits, num_samples, seed, **options)

    monkeypatch.setattr(stateless_random, "_bits", recorded)
    monkeypatch.setattr(tf.random, "stateless_categorical", recorded_choice)
    return made


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(CASES, "apex"))
def test_no_two_streams_depend_on_each_other(name, words, monkeypatch):
    monkeypatch.setattr(update_on_replicas, "BATCH", ROWS)
    settings, observation, action = CASES[name]
    spec = EnvironmentSpec(observation, action)
    agent = from_values(agent_class(name), settings)
    layout = Layout(spec, ROWS, actors=1, shards=1, replicas=1, seed=1, max_steps=100_000)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    layout = trace_layout(agent, layout, networks)
    policy = agent.make_policy(networks, "train")
    seen, unset = np.zeros((ROWS, *observation.shape), observation.dtype), np.zeros(ROWS, bool)
    timestep = Timestep(seen, np.zeros(ROWS, np.float32), np.ones(ROWS, np.float32), unset, unset)
    for step in range(2):
        policy(timestep, policy.initial_state(ROWS), tf.range(ROWS), tf.constant([7, step]))
    if isinstance(learner, GradientLearner) and learner._seed is not None:
        sample = update_on_replicas.random_sample(layout, agent.n_step if hasattr(agent, "n_step") else 1)
        for batch in range(2):
            learner._loss(sample, tf.constant([1, batch], tf.int64))

    assert len(words) >= 2
    everything = np.concatenate([each.ravel() for each in words])
    assert len(np.unique(everything)) == len(everything)
    columns = [column for each in words for column in each.T[:4] if len(each) == ROWS]
    correlations = np.corrcoef(np.array(columns) / 2.0**64) - np.eye(len(columns))
    # One in a billion pairs of independent columns correlates by 6 standard deviations.
    assert np.abs(correlations).max() < 6 / np.sqrt(ROWS)


def test_a_second_use_of_a_stream_is_found():
    seed = tf.constant([1, 2])
    one, other = (stateless_random.uniform(seed, "a use", np.arange(9)).numpy() for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_all_agents_that_sample_are_in_the_table():
    same = {
        "bc": "impala",
        "awr": "impala",
        "iql": "impala",
        "td3_bc": "td3",
        "appo": "impala",
        "a3c": "a2c",
        "r2d2": "apex",
        "pqn": "apex",
        "qmix": "apex",
        "vdn": "apex",
    }
    assert set(AGENTS) == {*CASES, *same}
