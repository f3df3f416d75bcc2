"""IMPALA: what its learner makes of an episode, and its loss."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from impala_samples import log_softmax, random_sample
from recording_actor import Actor
from small_worlds import ACTIONS, FINAL_SHOWN, INTERFACES, SPEC, Ending, FixedNetwork, layout_of, reward_of

from callboard.agents.impala import Impala, ImpalaExtras
from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.networks.heads import PolicyValue
from callboard.replay import ReplayHandle, start_server
from callboard.settings.nested_settings import from_values


class TableNetwork(tf.Module):
    """A row of logits and a value for each observation `[episode, step]`, up to 4 episodes and 8 steps."""

    normalizer = None
    spec = SPEC

    def __init__(self, seed, dtype):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.logits = tf.Variable(rng.normal(size=(4, 8, ACTIONS)), dtype=dtype)
        self.values = tf.Variable(3 * rng.normal(size=(4, 8)), dtype=dtype)
        self.outputs: Any = None

    def initial_state(self, batch_size):
        return ()

    def regularization_loss(self):
        return 0.0

    def step(self, inputs, state, first, training=False):
        index = tf.cast(inputs.observation, tf.int32)
        self.outputs = PolicyValue(tf.gather_nd(self.logits, index), tf.gather_nd(self.values, index))
        return self.outputs, state

    unroll = step


AGENT = Impala(unroll_length=6, batch_size=2, discount=0.9, entropy_cost=0.0, lambda_=0.95, clip_c=0.9, clip_rho=1.1)


def acting_network() -> TableNetwork:
    return TableNetwork(seed=1, dtype=tf.float32)


def learning_network() -> TableNetwork:
    return TableNetwork(seed=2, dtype=tf.float64)


def first_batch(environment, directory) -> Sample:
    """What the learner is given of an actor's first timesteps, through a replay server."""
    network = acting_network()
    layout = trace_layout(AGENT, layout_of(environment.spec), network)
    server = start_server(AGENT.make_replay(layout).tables(), None, directory)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    writer = AGENT.make_replay(layout).writer(replay, 0)
    # Without sampling: the same observation gives the same action in every interface.
    policy = CompiledPolicy(AGENT.make_policy(network, "evaluate"), layout, np.arange(2), seed=1)
    actor = Actor(environment, policy, writer)
    for _ in range(AGENT.unroll_length + 1):
        actor.step()
        assert writer.ready(timeout=10.0, max_pending=0)
    batches = iter(AGENT.make_replay(layout).dataset(replay, tf.distribute.InputContext()).dataset)
    sample = next(batches)
    writer.close()
    server.stop()
    # Given up only now: an iterator waits for what it has requested from a server that is up.
    del batches
    return sample


class Target(NamedTuple):
    value: float
    advantage: float


def learner_targets(network: TableNetwork, sample: Sample) -> list[dict[tuple[int, int], Target]]:
    """What the loss pulls values and policy towards, by observation `(episode, step)`, for each environment.

    Read off the gradients of the loss: V - target for the value, and advantage times that of the log-probability for
    the logits.
    """
    with tf.GradientTape() as tape:
        loss = AGENT.loss(network, sample).loss
    outputs = network.outputs
    by_logits, by_value = (gradient.numpy() for gradient in tape.gradient(loss, [outputs.logits, outputs.value]))
    probabilities = tf.nn.softmax(outputs.logits).numpy()
    # The observation that ends the sequence is only bootstrapped from.
    assert not by_value[-1].any() and not by_logits[-1].any()
    targets: list[dict[tuple[int, int], Target]] = [{}, {}]
    for t, b in np.ndindex(AGENT.unroll_length, AGENT.batch_size):
        action = sample.record.action[t, b].numpy()
        episode, step = (int(part) for part in sample.record.observation[t, b])
        targets[b][episode, step] = Target(
            value=outputs.value[t, b].numpy() - by_value[t, b] / AGENT.baseline_cost,
            advantage=-by_logits[t, b, action] / (1 - probabilities[t, b, action]),
        )
    return targets


def expected_targets(
    network: TableNetwork, steps: int, bootstrap: float, episode: int = 0
) -> dict[tuple[int, int], Target]:
    """Equation (1) and section 4.2 of the paper for the first `steps` transitions of an episode, term by term."""
    mu = tf.nn.softmax(acting_network().logits[episode]).numpy()
    pi = tf.nn.softmax(network.logits[episode]).numpy()
    actions = mu.argmax(axis=-1)
    value = [*network.values[episode, :steps].numpy(), bootstrap]
    ratio = [pi[t, actions[t]] / mu[t, actions[t]] for t in range(steps)]
    rho = [min(AGENT.clip_rho, ratio[t]) for t in range(steps)]
    c = [AGENT.lambda_ * min(AGENT.clip_c, ratio[t]) for t in range(steps)]
    reward = [reward_of(episode, t, actions[t]) for t in range(steps)]
    vs = []
    for s in range(steps):
        total = value[s]
        for t in range(s, steps):
            delta = rho[t] * (reward[t] + AGENT.discount * value[t + 1] - value[t])
            total += AGENT.discount ** (t - s) * np.prod(c[s:t]) * delta
        vs.append(total)
    vs.append(bootstrap)
    return {
        (episode, s): Target(
            vs[s],
            min(AGENT.clip_policy_gradient_rho, ratio[s]) * (reward[s] + AGENT.discount * vs[s + 1] - value[s]),
        )
        for s in range(steps)
    }


def of_episode(targets, episode=0):
    return {key: target for key, target in targets.items() if key[0] == episode}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, target in expected.items():
        np.testing.assert_allclose(found[key], target, rtol=1e-5, atol=1e-6, err_msg=str(key))


@pytest.mark.slow("daily")
def test_an_episode_that_terminates_gives_the_same_targets_in_every_interface(tmp_path):
    scripts = [[Ending(4, terminates=True)], [Ending(1, terminates=True), Ending(2, terminates=True)]]
    network = learning_network()
    for number, (name, make) in enumerate(INTERFACES.items()):
        first, second = learner_targets(network, first_batch(make(scripts), tmp_path / str(number)))
        assert_same(of_episode(first), expected_targets(network, steps=4, bootstrap=0.0) | final(network, name, 4))
        assert_same(of_episode(second), expected_targets(network, steps=1, bootstrap=0.0) | final(network, name, 1))
        expected = expected_targets(network, steps=2, bootstrap=0.0, episode=1)
        assert_same(of_episode(second, 1), expected | final(network, name, 2, episode=1))


def final(network, interface, step, episode=0):
    """The target of the observation that ends an episode: its own value, since the action there is ignored."""
    if interface not in FINAL_SHOWN:
        return {}
    return {(episode, step): Target(network.values[episode, step].numpy(), 0.0)}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("interface", FINAL_SHOWN)
def test_a_time_limit_bootstraps_from_its_final_observation(interface, tmp_path):
    network = learning_network()
    scripts = [[Ending(4, terminates=False)], [Ending(2, terminates=False)]]
    sample = first_batch(INTERFACES[interface](scripts), tmp_path)
    for found, steps in zip(learner_targets(network, sample), (4, 2), strict=True):
        bootstrap = network.values[0, steps].numpy()
        assert_same(of_episode(found), expected_targets(network, steps, bootstrap) | final(network, interface, steps))
    before = [of_episode(targets) for targets in learner_targets(network, sample)]
    network.values[1:].assign(network.values[1:] + 1000.0)
    assert [of_episode(targets) for targets in learner_targets(network, sample)] == before


@pytest.mark.slow("daily")
def test_nothing_is_learned_across_a_cut_that_lost_the_final_observation(tmp_path):
    network = learning_network()
    scripts = [[Ending(4, terminates=False)], [Ending(1, terminates=False)]]
    sample = first_batch(INTERFACES["vector, same step"](scripts), tmp_path)
    first, second = learner_targets(network, sample)
    # The last observation that is left is bootstrapped from, and has no target but its own value.
    last = network.values[0, 3].numpy()
    assert_same(of_episode(first), expected_targets(network, 3, bootstrap=last) | {(0, 3): Target(last, 0.0)})
    assert_same(of_episode(second), {(0, 0): Target(network.values[0, 0].numpy(), 0.0)})
    # The episode after it continues to the end of the sequence.
    end = network.values[1, 5].numpy()
    assert_same(of_episode(second, 1), expected_targets(network, 5, bootstrap=end, episode=1))
    # What is thought of the next episode does not matter, nor of the observation that was lost.
    network.values[1:].assign(network.values[1:] + 1000.0)
    network.values[0, 4].assign(1000.0)
    assert [of_episode(targets) for targets in learner_targets(network, sample)] == [
        of_episode(first),
        of_episode(second),
    ]


# The loss.


def loss_by_loops(agent: Impala, logits, value, record: Record) -> dict[str, float]:
    """The loss of section 4.2 and its parts, transition by transition."""
    policy_loss = baseline_loss = entropy = weight = seen = valid = 0.0
    for b in range(agent.batch_size):
        vs_next, ends = value[-1, b], True
        for t in reversed(range(agent.unroll_length)):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if record.last[t, b] or lost:
                vs_next, ends = value[t, b], True
                continue
            log_pi, log_mu = log_softmax(logits[t, b]), log_softmax(record.extras.logits[t, b])
            action = record.action[t, b]
            ratio = np.exp(log_pi[action] - log_mu[action])
            reward = float(record.reward[t, b])
            if isinstance(agent.reward_clip, float):
                reward = max(-agent.reward_clip, min(agent.reward_clip, reward))
            discount = agent.discount * record.discount[t, b]
            delta = min(agent.clip_rho, ratio) * (reward + discount * value[t + 1, b] - value[t, b])
            c = agent.lambda_ * min(agent.clip_c, ratio)
            correction = 0.0 if ends else discount * c * (vs_next - value[t + 1, b])
            vs = value[t, b] + delta + correction
            advantage = min(agent.clip_policy_gradient_rho, ratio) * (reward + discount * vs_next - value[t, b])
            policy_loss -= log_pi[action] * advantage
            baseline_loss += (vs - value[t, b]) ** 2 / 2
            entropy -= (np.exp(log_pi) * log_pi).sum()
            weight += ratio
            seen += value[t, b]
            valid += 1
            vs_next, ends = vs, False
    size = agent.unroll_length * agent.batch_size
    loss = policy_loss + agent.baseline_cost * baseline_loss - agent.entropy_cost * entropy
    parts = {
        "policy_loss": policy_loss,
        "baseline_loss": baseline_loss,
        "entropy": entropy,
        "importance_weight": weight,
        "value": seen,
    }
    means = {name: part / max(valid, 1) for name, part in parts.items()}
    return {"loss": loss, "valid_fraction": valid / size, **means}


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [
        Impala(unroll_length=7, batch_size=5),
        Impala(unroll_length=1, batch_size=5, entropy_cost=0.1),
        Impala(
            unroll_length=9,
            batch_size=4,
            discount=0.8,
            entropy_cost=0.3,
            baseline_cost=1.7,
            clip_rho=1.4,
            clip_c=0.6,
            clip_policy_gradient_rho=2.0,
            lambda_=0.9,
            normalize_rewards=False,
            reward_clip=0.5,
        ),
    ],
    ids=["defaults", "one step", "all settings"],
)
def test_the_loss_is_that_of_the_paper_in_float64(agent):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sample = random_sample(rng, agent)
        logits = rng.normal(size=(agent.unroll_length + 1, agent.batch_size, ACTIONS))
        value = rng.normal(size=(agent.unroll_length + 1, agent.batch_size))
        loss, metrics, priorities = agent.loss(
            FixedNetwork(PolicyValue(tf.constant(logits), tf.constant(value))), sample
        )
        assert priorities is None
        assert loss.dtype == tf.float64
        expected = loss_by_loops(agent, logits, value, sample.record)
        assert metrics.keys() | {"loss"} == expected.keys()
        for name, part in {**divided(metrics), "loss": loss}.items():
            np.testing.assert_allclose(part, expected[name], rtol=1e-6, atol=1e-9, err_msg=name)


# What is refused.


class Table(tf.Module):
    """A network whose weights are its outputs, in float64."""

    normalizer = None
    spec = SPEC

    def __init__(self, steps, batch):
        super().__init__()
        self.logits = tf.Variable(np.zeros((steps, batch, ACTIONS)))
        self.value = tf.Variable(np.zeros((steps, batch)))

    def regularization_loss(self):
        return 0.0

    def unroll(self, inputs, state, first, training=False):
        return PolicyValue(self.logits.value(), self.value.value()), state


PAPER = {
    "lambda_": 1.0,
    "unroll_length": 20,
    "batch_size": 32,
    "entropy_cost": 0.01,
    "normalize_rewards": False,
    "optimizer.name": "rmsprop",
    "optimizer.learning_rate": 6e-4,
    "optimizer.learning_rate_decay": False,
    "optimizer.epsilon": 0.01,
    "optimizer.max_gradient_norm": 40.0,
}


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("reward_scale", [0.3, 30.0], ids=["not clipped", "clipped"])
def test_the_first_updates_are_as_large_as_those_of_the_papers_settings(reward_scale):
    """Table G.1: sums over 20 x 32 transitions, clipped to a norm of 40, and the RMSProp of TensorFlow 1."""
    agent, rng = from_values(Impala, PAPER), np.random.default_rng(3)
    steps, batch = 20, 32
    network = Table(steps + 1, batch)
    learner = agent.make_learner(network, tf.distribute.get_strategy(), layout_of(SPEC))
    logits, value = network.logits.numpy(), network.value.numpy()
    squares = [np.ones_like(logits), np.ones_like(value)]
    clipped = 0
    for _ in range(3):
        record = random_sample(rng, agent, ends=0.0).record
        # Nothing ends, and the policy that acted is the one that learns: the targets are discounted returns.
        record = record._replace(
            reward=(reward_scale * record.reward).astype(np.float32),
            discount=np.ones_like(record.discount),
            extras=ImpalaExtras(logits[:-1].copy()),
        )
        pi = np.exp(log_softmax(logits))
        slopes = [np.zeros_like(logits), np.zeros_like(value)]
        target = value[-1]
        for t in reversed(range(steps)):
            target = record.reward[t] + 0.99 * target
            advantage = target - value[t]
            slopes[1][t] = -0.5 * advantage
            entropy = -(pi[t] * np.log(pi[t])).sum(axis=-1, keepdims=True)
            slopes[0][t] = advantage[:, np.newaxis] * (pi[t] - np.eye(ACTIONS)[record.action[t]])
            slopes[0][t] += 0.01 * pi[t] * (np.log(pi[t]) + entropy)
        norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
        clipped += norm > 40
        slopes = [slope * min(1.0, 40 / norm) for slope in slopes]
        squares = [0.99 * square + 0.01 * slope**2 for square, slope in zip(squares, slopes, strict=True)]
        moved = [6e-4 * slope / np.sqrt(square + 0.01) for slope, square in zip(slopes, squares, strict=True)]
        learner.step(iter([Sample(tree.map_structure(tf.constant, record), ())]))
        np.testing.assert_allclose(network.logits.numpy() - logits, -moved[0], rtol=1e-4, atol=1e-10)
        np.testing.assert_allclose(network.value.numpy() - value, -moved[1], rtol=1e-4, atol=1e-10)
        logits, value = network.logits.numpy(), network.value.numpy()
    assert clipped == (3 if reward_scale > 1 else 0)


def test_an_action_that_it_has_no_policy_for_is_refused():
    action = dm_specs.BoundedArray((2,), np.int32, 0, 3)
    with pytest.raises(CallboardError, match=r"impala needs actions that are discrete or floats .* int32\(2,\)"):
        Impala().check(layout_of(SPEC._replace(action=action), envs_per_actor=16))


@pytest.mark.parametrize(
    "batch_size, envs_per_actor, replicas, message",
    [
        (24, 16, 1, "set agent.batch_size to 16 or 32"),
        (10, 16, 1, "set agent.batch_size to 8 or 16"),
        (15, 5, 2, "cannot be shared by 2 learner devices: make agent.batch_size a multiple of 2"),
        (48, 16, 2, "set agent.batch_size to 32 or 64"),
    ],
)
def test_batches_that_cannot_be_formed_are_refused_with_sizes_that_can(batch_size, envs_per_actor, replicas, message):
    with pytest.raises(CallboardError) as caught:
        Impala(batch_size=batch_size).check(layout_of(SPEC, envs_per_actor, replicas))
    assert message in str(caught.value)


@pytest.mark.parametrize("batch_size, envs_per_actor, replicas", [(32, 16, 1), (16, 16, 1), (8, 16, 1), (32, 16, 2)])
def test_batches_of_whole_blocks_or_even_parts_of_them_are_fine(batch_size, envs_per_actor, replicas):
    Impala(batch_size=batch_size).check(layout_of(SPEC, envs_per_actor, replicas))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"unroll_length": 0}, "unroll_length must be a whole number of at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"queue_batches": 0}, "queue_batches must be a whole number of at least 1, not 0"),
        # Of a layer without units TensorFlow ends the process.
        (
            {"network.hidden_sizes": (64, 0)},
            "network.hidden_sizes must be a list of whole numbers from 1 to 65,536",
        ),
        ({"discount": 1.1}, "discount must be a number from 0 to 1, not 1.1"),
        ({"entropy_cost": -0.1}, "entropy_cost must be a number of at least 0 or a schedule .*, not -0.1"),
        (
            {"optimizer.learning_rate": -1.0},
            "optimizer.learning_rate must be a number above 0 or a schedule .*, not -1.0",
        ),
        ({"reward_clip": 0.0}, "reward_clip must be a number above 0, a list .* or null, not 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(CallboardError, match=f"agent.{message}"):
        from_values(Impala, settings).check(layout_of(SPEC, envs_per_actor=16))
