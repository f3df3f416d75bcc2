"""SAC over composed actions: its losses against loops over all choices, its policy, and masks."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
import tree
from composed_actions import ACTIONS, SEEN, random_mask, spec_of
from dm_env import specs as dm_specs
from slow_cases import slow_but
from small_worlds import layout_of
from update_on_replicas import BATCH, random_sample

from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import CompiledPolicy, trace_layout
from callboard.agents.sac import Sac
from callboard.data import Timestep
from callboard.networks import stateless_random as noise
from callboard.networks.actions.action_parts import ActionParts, one_hot_choices
from callboard.networks.network import Inputs
from callboard.networks.random_streams import Stream
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec
from callboard.transitions import valid_transitions

BOUNDED = {"arm": ACTIONS["nest"]["arm"], "move": dm_specs.BoundedArray((2,), np.float32, -1.0, 3.0)}
PARTS = ActionParts(BOUNDED)
SMALL = {"batch_size": BATCH, "network.hidden_sizes": (4,)}


pytestmark = pytest.mark.usefixtures("eagerly")


def made(spec, **settings):
    agent, layout = from_values(Sac, {**SMALL, **settings}), layout_of(spec, envs_per_actor=BATCH)
    agent.check(layout)
    networks = agent.make_networks(layout)
    return agent, networks, trace_layout(agent, layout, networks)


def random_actions(rng, mask, *leading):
    """Legal actions."""
    starts = np.cumsum(PARTS.sizes) - PARTS.sizes
    choices = np.zeros((*leading, 3), int)
    for index in np.ndindex(*leading):
        for k, (start, size) in enumerate(zip(starts, PARTS.sizes, strict=True)):
            choices[index][k] = rng.choice(np.flatnonzero(mask[index][start : start + size]))
    move = rng.uniform(-1, 3, (*leading, 2)).astype(np.float32)
    return {"arm": (choices[..., 0], choices[..., np.newaxis, 1:].astype(np.int32)), "move": move}, choices


@pytest.mark.slow("daily")
def test_losses_by_hand():
    rng = np.random.default_rng(0)
    agent, networks, layout = made(spec_of(BOUNDED, masked=True), discount=0.9, temperature=0.7)
    learned = networks.actor_critic
    for variable in learned.policy.variables:
        variable.assign(rng.normal(size=variable.shape))
    for variable in learned.target_critic.variables:
        variable.assign(rng.normal(size=variable.shape))
    sample = random_sample(layout, 1)
    mask = random_mask(rng, PARTS.sizes, 2, BATCH)
    action, choices = random_actions(rng, mask[:1], 1, BATCH)
    observation = {**sample.record.observation, "action_mask": mask}
    record = sample.record._replace(observation=observation, action=action)
    sample = tree.map_structure(tf.constant, sample._replace(record=record))
    seed = tf.constant([3, 4], tf.int64)
    output = agent.loss(learned, sample, seed)
    losses, metrics = output.loss, divided(output.metrics)
    streams = (Stream.LEARNED_ACTION, Stream.TARGET_ACTION)
    normal = np.stack([noise.standard_normal(seed, stream, tf.range(BATCH), (2,)).numpy() for stream in streams])
    valid = valid_transitions(record.first, record.last, record.discount)[0]
    starts = np.cumsum(PARTS.sizes) - PARTS.sizes

    def policy(t, b):
        """Sampled numbers, log-density, and probabilities of all combinations of choices."""
        at = tree.map_structure(lambda leaf: leaf[t, b : b + 1], observation)
        found, _ = learned.policy.step(Inputs(at), (), tf.ones(1, tf.bool))
        numbers, log_prob = found.numbers.sample_and_log_prob(normal[t, b : b + 1])
        rows = []
        for k, (start, size) in enumerate(zip(starts, PARTS.sizes, strict=True)):
            legal, logits = mask[t, b, start : start + size], found.choices.logits[0, k, :size].numpy()
            weights = [math.exp(logit) if allowed else 0.0 for logit, allowed in zip(logits, legal, strict=True)]
            rows.append(np.array(weights) / sum(weights))
        combined = {c: math.prod(row[v] for row, v in zip(rows, c, strict=True)) for c in np.ndindex(*PARTS.sizes)}
        return at, numbers, float(log_prob[0]), {c: p for c, p in combined.items() if p > 0}

    def values(critic, at, numbers, choices):
        q = critic(at, numbers, one_hot_choices(PARTS, np.array([choices]), tf.float32))
        return q[:, 0].numpy()

    sums = {"critic_loss": 0.0, "actor_loss": 0.0, "temperature_loss": 0.0, "entropy": 0.0, "value": 0.0}
    for b in range(BATCH):
        at, numbers, log_density, combined = policy(0, b)
        log_prob = log_density + sum(p * math.log(p) for p in combined.values())
        expected = sum(p * values(learned.critic, at, numbers, c) for c, p in combined.items())
        later, later_numbers, later_density, later_combined = policy(1, b)
        later_log_prob = later_density + sum(p * math.log(p) for p in later_combined.values())
        target = sum(p * values(learned.target_critic, later, later_numbers, c) for c, p in later_combined.items())
        y = float(record.reward[0, b])
        if record.discount[0, b]:
            y += 0.9 * (target.min() - 0.7 * later_log_prob)
        unit = np.array([(record.action["move"][0, b] - 1) / 2], np.float32)
        taken = values(learned.critic, at, unit, choices[0, b])
        counts = [mask[0, b, start : start + size].sum() for start, size in zip(starts, PARTS.sizes, strict=True)]
        wanted = 0.5 * sum(map(math.log, counts)) - 2
        if valid[b]:
            sums["entropy"] -= log_prob
            sums["value"] += expected.min()
            sums["critic_loss"] += ((taken - y) ** 2).sum() / 2
            sums["actor_loss"] += 0.7 * log_prob - expected.min()
            sums["temperature_loss"] -= 0.7 * (log_prob + wanted)
    for name, total in sums.items():
        np.testing.assert_allclose(metrics[name], total / valid.sum(), rtol=2e-4, err_msg=name)
        if name in losses:
            np.testing.assert_allclose(losses[name], total / BATCH, rtol=2e-4, err_msg=name)


@pytest.mark.slow("daily")
def test_one_array_in_a_tuple_is_learned_as_itself():
    box = BOUNDED["move"]
    agent, networks, layout = made(EnvironmentSpec(SEEN, box))
    _, others, _ = made(EnvironmentSpec(SEEN, (box,)))
    for own, other in zip(networks.variables, others.variables, strict=True):
        other.assign(tf.reshape(own, other.shape))
    sample = tree.map_structure(tf.constant, random_sample(layout, 1))
    seed = tf.constant([3, 4], tf.int64)
    output = agent.loss(networks.actor_critic, sample, seed)
    wrapped = sample._replace(record=sample.record._replace(action=(sample.record.action,)))
    same = agent.loss(others.actor_critic, wrapped, seed)
    for key, value in divided(output.metrics).items():
        np.testing.assert_allclose(divided(same.metrics)[key], value, rtol=1e-5, err_msg=key)


@pytest.mark.slow("daily")
def test_nothing_is_learned_from_a_masked_value():
    rng = np.random.default_rng(0)
    agent, networks, layout = made(spec_of(BOUNDED, masked=True))
    learned = networks.actor_critic
    sample = random_sample(layout, 1)
    mask = np.ones((2, BATCH, 9), np.int8)
    # The last value of the last choice.
    mask[..., -1] = 0
    action, _ = random_actions(rng, mask[:1], 1, BATCH)
    record = sample.record._replace(observation={**sample.record.observation, "action_mask": mask}, action=action)
    sample, seed = tree.map_structure(tf.constant, sample._replace(record=record)), tf.constant([1, 2], tf.int64)
    with tf.GradientTape() as tape:
        losses = agent.loss(learned, sample, seed).loss
        loss = losses["actor_loss"] + losses["critic_loss"]
    trained = (*learned.policy.trainable_variables, *learned.critic.trainable_variables)
    heads = [variable for variable in trained if variable.shape[-1] in (9, 10)]
    assert len(heads) == 6
    for gradient in tape.gradient(loss, heads):
        gradient = gradient.numpy()
        assert np.isfinite(gradient).all() and not gradient[..., -1].any() and gradient[..., -2].any()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("learning, hold", slow_but(itertools.product([False, True], [1, 3]), (False, 1), (True, 3)))
def test_acting_in_every_mode(learning, hold):
    rows, rng = 100, np.random.default_rng(1)
    spec = spec_of(BOUNDED, masked=True)
    agent, layout = from_values(Sac, {**SMALL, "hold": hold}), layout_of(spec, envs_per_actor=rows)
    networks = agent.make_networks(layout)
    networks.learning.assign(learning)
    nothing, never = np.zeros(rows, np.float32), np.zeros(rows, bool)
    starts = np.cumsum(PARTS.sizes) - PARTS.sizes
    for mode in agent.modes():
        policy, before, held = (
            CompiledPolicy(agent.make_policy(networks, mode), layout, np.arange(rows), seed=1),
            None,
            0,
        )
        for _ in range(3):
            mask = random_mask(rng, PARTS.sizes, rows)
            seen = {"action_mask": mask, "observation": np.zeros((rows, 3), np.float32)}
            taken, _ = policy(Timestep(seen, nothing, nothing + 1, never, never))
            choices = PARTS.choices(taken).numpy()
            assert np.take_along_axis(mask, starts + choices, axis=1).all()
            assert (taken["move"] >= -1).all() and (taken["move"] <= 3).all()
            if before is not None:
                held += (taken["move"] == before).all(axis=-1).sum()
            before = taken["move"]
        assert (held > 0) == (mode == "evaluate" or (hold > 1 and mode == "train"))
