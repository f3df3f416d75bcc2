"""PPO: what actors write, its loss, and what it refuses."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from ppo_samples import CONTINUOUS, DISCRETE, layout_of, random_sample
from recording_actor import Actor
from small_worlds import FixedNetwork

from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.policies.ppo_policy import PpoNetworks
from callboard.agents.ppo import Ppo
from callboard.agents.ppo_rollout import observation_values
from callboard.agents.schedules import Schedule
from callboard.data import Record, Sample, Version
from callboard.environments import make
from callboard.errors import CallboardError
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.networks.network import Inputs
from callboard.replay import ReplayHandle, start_server
from callboard.settings.nested_settings import from_values

# What actors write.


def sequences(agent: Ppo, env: str, number: int, directory: pathlib.Path) -> tuple[PpoNetworks, list[Sample]]:
    """What a learner is given of an actor that is held back after every sequence, and the networks that acted."""
    environment = make(env, 2, [1, 2], {})
    layout = layout_of(environment.spec, envs_per_actor=2)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    layout = trace_layout(agent, layout, networks)
    server = start_server(agent.make_replay(layout).tables(), None, directory)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    policy = CompiledPolicy(agent.make_policy(networks, "train"), layout, np.arange(2), seed=1)
    actor = Actor(environment, policy, agent.make_replay(layout).writer(replay, 0))
    batches = iter(agent.make_replay(layout).dataset(replay, tf.distribute.InputContext()).dataset)
    samples = []
    for sequence in range(number):
        actor.version = Version(0, sequence)
        for _ in range(agent.unroll_length):
            actor.step()
        actor.end_sequence()
        assert actor.writer.ready(timeout=10.0, max_pending=0)
        samples.append(tree.map_structure(lambda leaf: leaf.numpy(), next(batches)))
    actor.writer.close()
    server.stop()
    del batches
    return networks, samples


@pytest.mark.slow("daily")
def test_sequences_of_an_actor_that_waits_follow_each_other(tmp_path):
    agent = from_values(
        Ppo,
        {
            "unroll_length": 6,
            "batch_size": 2,
            "minibatches": 4,
            "discount": 0.9,
            "network.core": "lstm",
            "network.lstm_size": 3,
        },
    )
    networks, samples = sequences(agent, "CartPole-v1", 6, tmp_path)
    record = tree.map_structure(
        lambda *leaves: np.concatenate([leaf[:6] for leaf in leaves]), *(sample.record for sample in samples)
    )
    for number, sample in enumerate(samples):
        # All of it was acted on with the weights that were there when it began.
        assert (sample.record.version[..., 1] == number).all()
        if number:
            before = samples[number - 1].record
            np.testing.assert_array_equal(sample.record.observation[0], before.observation[-1])
    assert record.first[1:].any(), "no episode has ended"
    # Discounted returns up to the reward of each transition.
    returns = np.concatenate([sample.discounted_return for sample in samples])
    for b in range(2):
        total = 0.0
        for t in range(36):
            total = (0.0 if record.first[t, b] else 0.9 * total) + record.reward[t, b]
            np.testing.assert_allclose(returns[t, b], total, rtol=1e-5)
    # The stored states are those that the actor had: values and probabilities from there are those of one long unroll.
    whole, _ = networks.network.unroll(
        inputs(record.observation), networks.network.initial_state(2), tf.constant(record.first)
    )
    log_probs = tf.nn.log_softmax(whole.logits).numpy()
    taken = np.take_along_axis(log_probs, record.action[..., np.newaxis], axis=-1)[..., 0]
    np.testing.assert_allclose(record.extras.log_prob, taken, atol=1e-5)
    for number, sample in enumerate(samples):
        values = observation_values(networks, tree.map_structure(tf.constant, sample)).numpy()
        np.testing.assert_allclose(values[:6], whole.value[6 * number : 6 * number + 6], atol=1e-5)


def inputs(observation):
    return Inputs(tf.constant(observation))


@pytest.mark.slow("daily")
def test_continuous_actions_are_scaled_and_clipped_but_learned_from_as_they_were_sampled(tmp_path):
    agent = Ppo(unroll_length=20, batch_size=2, minibatches=4, initial_log_std=0.5)
    networks, (sample,) = sequences(agent, "Pendulum-v1", 1, tmp_path)
    sampled = sample.record.extras.gaussian
    assert sampled.shape == (20, 2, 1) and (np.abs(sampled) > 1).any() and (np.abs(sampled) < 1).any()
    np.testing.assert_allclose(sample.record.action, np.clip(2 * sampled, -2, 2), rtol=1e-6)
    outputs, _ = networks.network.unroll(
        inputs(sample.record.observation[:-1]), (), tf.constant(sample.record.first[:-1])
    )
    mean, std = outputs.mean.numpy(), np.exp(0.5)
    density = np.exp(-(((sampled - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(sample.record.extras.log_prob, np.log(density)[..., 0], atol=1e-5)


# The loss.


def log_prob_and_entropy(outputs, record: Record, t: int, b: int) -> tuple[float, float]:
    if isinstance(outputs, PolicyValue):
        log_pi = outputs.logits[t, b] - np.log(np.exp(outputs.logits[t, b]).sum())
        return log_pi[record.action[t, b]], -(np.exp(log_pi) * log_pi).sum()
    std = np.exp(outputs.log_std[t, b])
    z = (record.extras.gaussian[t, b] - outputs.mean[t, b]) / std
    log_prob = sum(-(z**2) / 2 - np.log(std * np.sqrt(2 * np.pi)))
    return log_prob, sum(np.log(std * np.sqrt(2 * np.pi * np.e)))


def loss_by_loops(agent: Ppo, outputs, value: np.ndarray, record: Record, scale: float) -> dict[str, float]:
    """Equations (7) to (12) transition by transition; `value` is that before the iteration."""
    shape = record.reward.shape
    advantages, valid = np.zeros(shape), np.zeros(shape, bool)
    for b in range(shape[1]):
        for t in reversed(range(shape[0])):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            valid[t, b] = not (record.last[t, b] or lost)
            if not valid[t, b]:
                continue
            reward = (
                max(-10.0, min(10.0, record.reward[t, b] / scale)) if agent.normalize_rewards else record.reward[t, b]
            )
            discount = agent.discount * record.discount[t, b]
            delta = reward + discount * value[t + 1, b] - value[t, b]
            later = advantages[t + 1, b] if t + 1 < shape[0] else 0.0
            advantages[t, b] = delta + discount * agent.gae_lambda * later
    targets = value[:-1] + advantages
    if agent.normalize_advantages:
        chosen = advantages[valid]
        advantages = (advantages - chosen.mean()) / chosen.std()
    policy_loss = value_loss = entropy = kl = clipped = 0.0
    for t, b in zip(*np.nonzero(valid), strict=True):
        log_prob, nats = log_prob_and_entropy(outputs, record, t, b)
        log_ratio = log_prob - record.extras.log_prob[t, b]
        ratio, new = np.exp(log_ratio), outputs.value[t, b]
        within = max(1 - agent.clip, min(1 + agent.clip, ratio))
        policy_loss -= min(ratio * advantages[t, b], within * advantages[t, b])
        error = (new - targets[t, b]) ** 2
        if agent.clip_value:
            near = value[t, b] + max(-agent.clip, min(agent.clip, new - value[t, b]))
            error = max(error, (near - targets[t, b]) ** 2)
        value_loss += error / 2
        entropy += nats
        kl += ratio - 1 - log_ratio
        clipped += abs(ratio - 1) > agent.clip
    parts = {
        "loss": policy_loss + agent.value_cost * value_loss - agent.entropy_cost * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approximate_kl": kl,
        "clip_fraction": clipped,
        "value": outputs.value[valid].sum(),
        "valid_fraction": valid.sum(),
    }
    of_all = ("loss", "valid_fraction")
    return {name: part / (valid.size if name in of_all else valid.sum()) for name, part in parts.items()}


def deviation_of_returns(sample: Sample) -> float:
    """Of the discounted returns of all valid transitions."""
    record, chosen = sample.record, []
    for t, b in np.ndindex(*record.reward.shape):
        lost = record.first[t + 1, b] and record.discount[t, b] != 0
        if not (record.last[t, b] or lost):
            chosen.append(float(sample.discounted_return[t, b]))
    return float(np.std(chosen))


PLAIN = Ppo(unroll_length=6, batch_size=5, minibatches=1, normalize_rewards=False, normalize_advantages=False)
OTHER = Ppo(
    unroll_length=5,
    batch_size=7,
    minibatches=1,
    discount=0.8,
    gae_lambda=0.6,
    clip=0.4,
    clip_value=True,
    entropy_cost=0.3,
    value_cost=1.7,
)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("agent", [PLAIN, OTHER], ids=["plain", "other"])
def test_the_loss_is_that_of_the_paper_in_float64(agent, spec):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sample, shape = random_sample(rng, agent, spec), (agent.unroll_length, agent.batch_size)
        value, new = rng.normal(size=(shape[0] + 1, shape[1])), rng.normal(size=shape)
        if spec is DISCRETE:
            outputs: Any = PolicyValue(rng.normal(size=(*shape, 3)), new)
        else:
            outputs = GaussianValue(rng.normal(size=(*shape, 2)), 0.3 * rng.normal(size=(*shape, 2)), new)
        # A network without memory sees every transition as a sequence of its own.
        flat = tree.map_structure(lambda leaf: tf.constant(leaf.reshape(1, -1, *leaf.shape[2:])), outputs)
        networks = PpoNetworks(FixedNetwork(flat), spec, agent.normalize_rewards)
        rollout = agent.rollout(networks, [tree.map_structure(tf.constant, sample)], [tf.constant(value)])
        loss, metrics, _ = agent.loss(networks, rollout, tf.constant(agent.clip))
        expected = loss_by_loops(agent, outputs, value, sample.record, deviation_of_returns(sample))
        assert 0.1 < expected["clip_fraction"] and expected["valid_fraction"] < 0.9
        assert metrics.keys() | {"loss"} == expected.keys()
        for name, part in {**divided(metrics), "loss": loss}.items():
            assert part.dtype == tf.float64
            np.testing.assert_allclose(part, expected[name], rtol=2e-6, atol=1e-9, err_msg=name)


# What is refused.


@pytest.mark.parametrize(
    "action",
    [dm_specs.Array((2,), np.float32), dm_specs.BoundedArray((2,), np.int32, 0, 3)],
)
def test_actions_that_it_has_no_policy_for_are_refused(action):
    with pytest.raises(CallboardError, match="ppo needs actions that are discrete or floats with bounds"):
        Ppo(batch_size=4).check(layout_of(DISCRETE._replace(action=action)))


def test_an_action_without_components_is_refused():
    nothing = dm_specs.BoundedArray((0,), np.float32, -1, 1)
    with pytest.raises(CallboardError, match="ppo has nothing to choose: the environment's action is float32"):
        Ppo().check(layout_of(DISCRETE._replace(action=nothing)))


@pytest.mark.parametrize(
    "settings, layout, message",
    [
        ({"batch_size": 24}, {"actors": 2, "envs_per_actor": 8}, "agent.batch_size a multiple of 16 (2 actors x 8 env"),
        ({"batch_size": 12}, {"actors": 3, "learners": 2}, "3 actors cannot be shared evenly by 2 learners"),
        ({"batch_size": 12}, {"replicas": 8}, "cannot be shared by 8 learner devices"),
        ({"minibatches": 7}, {}, "the 2048 transitions of a learner device cannot be divided into 7 minibatches: set "),
        ({"minibatches": 7}, {}, "agent.minibatches to 8"),
        (
            {"network.core": "lstm", "minibatches": 12},
            {},
            "the 32 sequences of a learner device cannot be divided into 12 ",
        ),
        ({"network.core": "lstm", "minibatches": 32}, {"replicas": 2}, "set agent.minibatches to 16"),
        ({"epochs": 0}, {}, "agent.epochs must be a whole number of at least 1, not 0"),
        (
            {"network.head_sizes": (64, 0)},
            {},
            "agent.network.head_sizes must be a list of whole numbers from 1 to 65,536",
        ),
        ({"max_policy_lag": -1}, {}, "agent.max_policy_lag must be a whole number of at least 0, not -1"),
        ({"clip": 0.0}, {}, f"agent.clip must be a number above 0 or {Schedule.description}, not 0.0"),
        ({"target_kl": -0.1}, {}, "agent.target_kl must be a number above 0 or null, not -0.1"),
        ({"gae_lambda": 1.5}, {}, "agent.gae_lambda must be a number from 0 to 1, not 1.5"),
        ({"network.lstm_size": 0}, {}, "agent.network.lstm_size must be a whole number from 1 to 65,536, not 0"),
        ({"initial_log_std": 2.5}, {}, "agent.initial_log_std must be a number from -10 to 2, not 2.5"),
        ({"initial_log_std": float("nan")}, {}, "agent.initial_log_std must be a number from -10 to 2, not nan"),
        ({"network.torso": "resnet20-x2"}, {}, "set agent.network.torso to impala or nature, not resnet20-x2"),
        ({}, {"max_steps": 2047}, "max_steps = 2047 are fewer than the 2048 of an iteration"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, layout, message):
    with pytest.raises(CallboardError) as caught:
        from_values(Ppo, settings).check(layout_of(DISCRETE, **layout))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", [{}, {"actors": 2, "envs_per_actor": 16}, {"replicas": 2}, {"replicas": 4}])
def test_defaults_fit_common_layouts(layout):
    for spec in (DISCRETE, CONTINUOUS):
        Ppo().check(layout_of(spec, max_steps=2048, **layout))
        from_values(Ppo, {"network.torso": "callboard.networks.torsos:NatureTorso"}).check(layout_of(spec, **layout))
