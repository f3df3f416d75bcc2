"""Policies act on observations in the environment's form, one or a batch, and give actions in its form."""

import re
import statistics
import threading
import time
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from callboard.agents.impala import Impala
from callboard.environments.batches.encoding import EnvironmentEncoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.trained.acting_policy import ActingPolicy


class Memory(NamedTuple):
    count: tf.Tensor
    last: tf.Tensor


class Echo(tf.Module):
    """Acts by the observation's sum; remembers how often it has acted in the episode, and the last reward."""

    def __init__(self, action, with_reward=True, memory=True):
        super().__init__()
        self._action, self._with_reward, self._memory = action, with_reward, memory

    def initial_state(self, batch_size):
        return Memory(tf.zeros((batch_size,), tf.int32), tf.zeros((batch_size, 2))) if self._memory else ()

    def __call__(self, timestep, state, slot, seed):
        total = tf.add_n(
            [
                tf.reduce_sum(tf.cast(leaf, tf.float32), range(1, leaf.shape.rank))
                for leaf in tf.nest.flatten(timestep.observation)
            ]
        )
        if self._memory:
            count = tf.where(timestep.first, 0, state.count) + 1
            reward = timestep.reward if self._with_reward else tf.zeros_like(total)
            state = Memory(count, tf.stack([total, reward], 1))
        return self._action(total), (), state


def made(observation, action, policy):
    spec = EnvironmentEncoding(observation_encoding(observation), action_encoding(action)).spec()
    return ActingPolicy(policy, spec)


VECTOR = spaces.Box(-9, 9, (3,), np.float64)


@pytest.mark.parametrize(
    "space, act, one, batch",
    [
        (spaces.Discrete(5, start=3), lambda total: tf.cast(total, tf.int32), 4, [4, 5]),
        (
            spaces.MultiDiscrete([5, 6], start=[1, 2]),
            lambda total: tf.cast(tf.stack([total, total], 1), tf.int32),
            [2, 3],
            [[2, 3], [3, 4]],
        ),
        (spaces.Box(-5, 5, (1,), np.float64), lambda total: total[:, None], [1.0], [[1.0], [2.0]]),
        (spaces.MultiBinary(1), lambda total: tf.cast(total[:, None] > 1, tf.int32), [0], [[0], [1]]),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, spaces.Space) else "",
)
def test_actions_are_those_that_the_environment_takes(space, act, one, batch):
    policy = made(VECTOR, space, Echo(act, memory=False))
    action, state = policy(np.array([1.0, 0, 0]))
    assert state == () and np.array_equal(action, one)
    assert space.contains(action) if not isinstance(action, int) else space.contains(np.int64(action))
    actions, state = policy(np.array([[1.0, 0, 0], [1, 1, 0]]))
    assert state == () and np.array_equal(actions, batch) and actions.dtype == space.dtype


def test_nested_actions_and_images_with_their_channels_first():
    image = spaces.Box(0, 255, (3, 16, 16), np.uint8)
    action = spaces.Dict({"go": spaces.Discrete(4, start=1), "how": spaces.Tuple((spaces.Box(-1, 1, ()),))})
    echo = Echo(lambda total: {"go": tf.zeros_like(total, tf.int32), "how": (total * 0 + 0.5,)}, memory=False)
    policy = made(image, action, echo)
    one, _ = policy(image.sample())
    assert one["go"] == 1 and one["how"] == (0.5,)
    many, _ = policy(np.stack([image.sample() for _ in range(3)]))
    assert many["go"].tolist() == [1, 1, 1] and many["how"][0].shape == (3,)


def test_state_is_given_back_for_one_and_for_a_batch():
    policy = made(VECTOR, spaces.Discrete(99), Echo(lambda total: tf.cast(total, tf.int32)))
    one = np.array([1.0, 1, 0])
    _, state = policy(one)
    assert policy.uses_reward and state.count == 1 and state.last.tolist() == [2, 0]
    _, state = policy(one, state, reward=3)
    assert state.count == 2 and state.last.tolist() == [2, 3]
    # As it comes back from JSON.
    _, state = policy(one, [2, [2.0, 3.0]], reward=1)
    assert state.count == 3
    _, state = policy(one, state, reward=1, first=True)
    assert state.count == 1
    batch = np.stack([one, 2 * one])
    _, state = policy(batch)
    assert state.count.tolist() == [1, 1]
    _, state = policy(batch, state, reward=[1, 2], first=[False, True])
    assert state.count.tolist() == [2, 1] and state.last.tolist() == [[2, 1], [4, 2]]
    # Sessions of their own can be put into one batch.
    sessions = [policy.initial_state(), policy(one)[1]]
    _, state = policy(batch, Memory(*map(np.stack, zip(*sessions, strict=True))), reward=0)
    assert state.count.tolist() == [1, 2]
    assert policy.initial_state(3).last.shape == (3, 2)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"state": ()}, "the state has another structure than the states that"),
        ({"state": {"a": 1}}, "the state has another structure than the states that"),
        ({"state": (1, [0.0])}, "the state has an array of shape (1,) where (2,) belongs to one observation"),
        ({"state": ([1, 2], np.zeros((2, 2)))}, "the state has an array of shape (2,) where () belongs to one observ"),
        ({"state": (1, [0.0, 0.0])}, "this policy uses rewards: pass the reward of the action before, as reward=..."),
        ({"state": (1, [0.0, 0.0]), "reward": [1, 2]}, "reward must be one finite number, not [1, 2]"),
        ({"state": (1, [0.0, 0.0]), "reward": np.nan}, "reward must be one finite number, not nan"),
        ({"state": (1, [0.0, 0.0]), "reward": "x"}, "reward contains text, 'x': give numbers"),
        ({"observation": np.array([np.nan, 0, 0])}, "the observation is NaN or infinite"),
        ({"observation": np.zeros(4)}, "the observation is float64(4,), but the environment gives float64(3,)"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments, message):
    policy = made(VECTOR, spaces.Discrete(99), Echo(lambda total: tf.cast(total, tf.int32)))
    with pytest.raises(CallboardError, match=f"^{re.escape(message)}[^\n]*$"):
        policy(**{"observation": np.zeros(3), **arguments})


def test_a_policy_that_needs_one_batch_size_is_refused():
    class Static(Echo):
        def __call__(self, timestep, state, slot, seed):
            return tf.zeros((int(slot.shape[0]),), tf.int32), (), ()

    with pytest.raises(CallboardError, match="the policy cannot act on batches of any size"):
        made(VECTOR, spaces.Discrete(99), Static(None, memory=False))


@pytest.fixture(scope="module")
def cartpole():
    experiment = Experiment(Impala(), "CartPole-v1")
    layout = experiment.layout()
    networks = experiment.agent.make_networks(layout)
    return lambda mode, seed=0: ActingPolicy(experiment.agent.make_policy(networks, mode), layout.spec, seed)


@pytest.mark.slow("daily")
def test_sampled_actions_depend_on_the_seed_and_on_the_call(cartpole):
    observation = gymnasium.make("CartPole-v1").reset(seed=1)[0]

    def sampled(seed):
        policy = cartpole("sample", seed)
        return [policy(observation)[0] for _ in range(40)]

    assert sampled(1) == sampled(1) != sampled(2)
    assert set(sampled(1)) == {0, 1}
    assert not cartpole("evaluate").uses_reward


def test_threads_may_share_a_policy(cartpole):
    policy, actions = cartpole("evaluate"), []

    def play():
        environment = gymnasium.make("CartPole-v1")
        observation, _ = environment.reset(seed=7)
        for _ in range(20):
            action, _ = policy(observation)
            observation, *_ = environment.step(action)
            actions.append(action)

    threads = [threading.Thread(target=play) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actions) == 60


@pytest.mark.slow
def test_a_call_for_cartpole_takes_less_than_300_microseconds(cartpole):
    policy = cartpole("evaluate")
    observation = gymnasium.make("CartPole-v1").reset(seed=1)[0]

    def seconds():
        begun = time.perf_counter()
        policy(observation)
        return time.perf_counter() - begun

    # Of several stretches the quietest one.
    assert min(statistics.median(seconds() for _ in range(500)) for _ in range(10)) < 300e-6
