"""A2C: its loss against a loop over numbers, what its policy records, and what it refuses."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from ppo_samples import CONTINUOUS, DISCRETE, layout_of, of_step
from small_worlds import FixedNetwork

from callboard.agents.a2c import A2C
from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import trace_layout
from callboard.agents.policies.ppo_policy import PpoExtras, PpoNetworks
from callboard.data import Record, Sample
from callboard.errors import CallboardError
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec


def random_sample(rng: Any, agent: A2C, spec: EnvironmentSpec, batch: int, ends: float = 0.3) -> Sample:
    """Sequences whose episodes end in every way: by termination, at a time limit, and with a lost observation."""
    steps, discrete = agent.unroll_length, spec is DISCRETE
    first = rng.random((steps + 1, batch)) < ends
    last = rng.random((steps + 1, batch)) < ends
    discount = np.where(last[:-1] | (rng.random((steps, batch)) < 0.7), 1.0, 0.0).astype(np.float32)
    action = rng.integers(3, size=(steps, batch)) if discrete else rng.normal(size=(steps, batch, 2))
    gaussian = () if discrete else rng.normal(size=(steps, batch, 2))
    return Sample(
        Record(
            observation=rng.normal(size=(steps + 1, batch, 2)).astype(np.float32),
            first=first,
            last=last,
            action=action.astype(np.int32 if discrete else np.float32),
            reward=(2 * rng.normal(size=(steps, batch))).astype(np.float32),
            discount=discount,
            extras=PpoExtras(rng.normal(size=(steps, batch)), gaussian),
            version=np.zeros((steps, batch, 2), np.int32),
        ),
        state=(),
    )


def log_prob_and_entropy(outputs: Any, record: Record, t: int, b: int) -> tuple[float, float]:
    if isinstance(outputs, PolicyValue):
        log_pi = outputs.logits[t, b] - np.log(np.exp(outputs.logits[t, b]).sum())
        return log_pi[record.action[t, b]], -(np.exp(log_pi) * log_pi).sum()
    std = np.exp(outputs.log_std[t, b])
    z = (record.extras.gaussian[t, b] - outputs.mean[t, b]) / std
    log_prob = sum(-(z**2) / 2 - np.log(std * np.sqrt(2 * np.pi)))
    return log_prob, sum(np.log(std * np.sqrt(2 * np.pi * np.e)))


def loss_by_loops(agent: A2C, outputs: Any, record: Record) -> dict[str, float]:
    """Algorithm S3 transition by transition: R <- r + gamma R from the end of each episode or sequence."""
    steps, batch = record.reward.shape
    advantages, valid = np.zeros((steps, batch)), np.zeros((steps, batch), bool)
    value = outputs.value
    for b in range(batch):
        advantage = 0.0
        for t in reversed(range(steps)):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if record.last[t, b] or lost:
                # The sum ends here; the transition before bootstraps from this observation's value.
                advantage = 0.0
                continue
            valid[t, b] = True
            reward = float(record.reward[t, b])
            if isinstance(agent.reward_clip, float):
                reward = max(-agent.reward_clip, min(agent.reward_clip, reward))
            discount = agent.discount * record.discount[t, b]
            # With lambda = 1 this is R_t - V(x_t).
            later = discount * (value[t + 1, b] + agent.gae_lambda * advantage)
            advantage = advantages[t, b] = reward + later - value[t, b]
    targets = value[:-1] + advantages
    if agent.normalize_advantages:
        advantages = (advantages - advantages[valid].mean()) / advantages[valid].std()
    policy_loss = value_loss = entropy = 0.0
    for t, b in zip(*np.nonzero(valid), strict=True):
        log_prob, nats = log_prob_and_entropy(outputs, record, t, b)
        policy_loss -= log_prob * advantages[t, b]
        value_loss += (targets[t, b] - value[t, b]) ** 2 / 2
        entropy += nats
    parts = {
        "loss": policy_loss + agent.value_cost * value_loss - agent.entropy_cost * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "value": value[:-1][valid].sum(),
        "valid_fraction": valid.sum(),
    }
    of_all = ("loss", "valid_fraction")
    return {name: part / (valid.size if name in of_all else valid.sum()) for name, part in parts.items()}


PLAIN = A2C(unroll_length=6, batch_size=5)
OTHER = A2C(
    unroll_length=7,
    batch_size=6,
    discount=0.8,
    gae_lambda=0.6,
    entropy_cost=0.3,
    value_cost=1.7,
    normalize_rewards=False,
    reward_clip=0.5,
    normalize_advantages=True,
)


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("agent", [PLAIN, OTHER], ids=["plain", "other"])
def test_the_loss_is_that_of_the_paper_in_float64(agent, spec):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        parts = [random_sample(rng, agent, spec, batch) for batch in (2, agent.batch_size - 2)]
        shape = (agent.unroll_length + 1, agent.batch_size)
        value = rng.normal(size=shape)
        if spec is DISCRETE:
            outputs: Any = PolicyValue(rng.normal(size=(*shape, 3)), value)
        else:
            outputs = GaussianValue(rng.normal(size=(*shape, 2)), 0.3 * rng.normal(size=(*shape, 2)), value)
        networks = PpoNetworks(FixedNetwork(tree.map_structure(tf.constant, outputs)), spec, normalize_rewards=False)
        loss, metrics, _ = agent.loss(networks, *parts)
        record = tree.map_structure(lambda *leaves: np.concatenate(leaves, axis=1), *(part.record for part in parts))
        expected = loss_by_loops(agent, outputs, record)
        assert 0.1 < expected["valid_fraction"] < 0.9
        assert metrics.keys() | {"loss"} == expected.keys()
        for name, part in {**divided(metrics), "loss": loss}.items():
            assert part.dtype == tf.float64
            np.testing.assert_allclose(part, expected[name], rtol=2e-6, atol=1e-9, err_msg=name)


@pytest.mark.usefixtures("eagerly")
def test_one_step_learns_from_all_parts_of_a_batch_and_drops_what_is_old():
    settings = {"unroll_length": 3, "batch_size": 8, "network.head_sizes": (), "normalize_rewards": False}
    agent = from_values(A2C, settings)
    layout, rng = layout_of(DISCRETE), np.random.default_rng(0)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    samples = [of_step(random_sample(rng, agent, DISCRETE, 4), step) for step in (0, 0, 0, 1, 1)]
    iterator = iter([tree.map_structure(tf.constant, sample) for sample in samples])
    dropped = [int(learner.step(iterator).metrics["dropped_rollouts"]) for _ in range(2)]
    assert dropped == [0, 1] and next(iterator, None) is None
    # The statistics of observations are of both batches.
    assert 2 * 8 * 4 in [variable.numpy().tolist() for variable in networks.network.normalizer.variables]


@pytest.mark.usefixtures("eagerly")
def test_accumulated_batches_make_the_step_of_one_batch():
    layout, rng = layout_of(DISCRETE), np.random.default_rng(0)
    settings = {"unroll_length": 3, "network.head_sizes": (), "optimizer.name": "sgd", "normalize_rewards": False}
    samples = [random_sample(rng, from_values(A2C, settings), DISCRETE, 4) for _ in range(4)]
    found = []
    for size, accumulate in ((16, 1), (8, 2)):
        agent = from_values(A2C, {**settings, "batch_size": size, "accumulate": accumulate})
        networks = agent.make_networks(layout)
        for variable in networks.network.trainable_variables:
            variable.assign(tf.ones_like(variable) / 8)
        learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
        iterator = iter([tree.map_structure(tf.constant, sample) for sample in samples])
        loss = learner.step(iterator).metrics["loss"]
        assert next(iterator, None) is None
        found.append((loss, *networks.network.variables))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-7)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_a_record_has_the_log_probability_and_the_action_before_it_is_clipped(spec):
    layout = layout_of(spec)
    layout = trace_layout(A2C(), layout, A2C().make_networks(layout))
    extras = layout.record.extras
    assert extras.log_prob.shape == () and layout.state == ()
    assert extras.gaussian == () if spec is DISCRETE else extras.gaussian.shape == (2,)


# What is refused.


def test_an_action_that_it_has_no_policy_for_is_refused():
    with pytest.raises(CallboardError, match="a2c needs actions that are discrete or floats with bounds"):
        A2C(batch_size=4).check(layout_of(DISCRETE._replace(action=dm_specs.BoundedArray((2,), np.int32, 0, 3))))


@pytest.mark.parametrize(
    "settings, layout, message",
    [
        ({"batch_size": 24}, {"actors": 2, "envs_per_actor": 8}, "agent.batch_size a multiple of 16 (2 actors x 8 env"),
        ({"batch_size": 12}, {"replicas": 8}, "cannot be shared by 8 learner devices"),
        ({"network.torso": "nature"}, {}, "torso 'nature' is for images"),
        ({"unroll_length": 0}, {}, "agent.unroll_length must be a whole number of at least 1, not 0"),
        ({}, {"max_steps": 159}, "max_steps = 159 are fewer than the 160 of an iteration"),
        (
            {"accumulate": 2},
            {"max_steps": 319},
            "320 of an iteration (agent.unroll_length x agent.batch_size x agent.a",
        ),
        (
            {"batch_size": 4, "accumulate": 2},
            {"replicas": 2},
            "make agent.batch_size a multiple of 8, or leave agent.acc",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, layout, message):
    with pytest.raises(CallboardError) as caught:
        from_values(A2C, settings).check(layout_of(DISCRETE, **layout))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", [{}, {"actors": 2, "envs_per_actor": 16}, {"replicas": 2}])
def test_defaults_fit_common_layouts(layout):
    for spec in (DISCRETE, CONTINUOUS):
        A2C().check(layout_of(spec, **layout))
