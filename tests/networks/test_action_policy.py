"""Policies over actions of any kind, against loops over single numbers."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tree
from composed_actions import ACTIONS, BOX, random_mask, spec_of
from dm_env import specs as dm_specs

from callboard.networks.action_policy import (
    AutoregressivePolicy,
    ComposedPolicy,
    DiscretePolicy,
    GaussianPolicy,
    action_policy,
)
from callboard.networks.actions.action_parts import ActionParts, Chosen
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.networks.heads.composed_heads import AutoregressiveValueHead, ComposedValue
from callboard.networks.torsos.dense import Layers

SLOT, SEED = tf.range(6), tf.constant([3, 4])


class Headed:
    def __init__(self, head):
        self.head = head


def random_outputs(parts, rng, *leading):
    count = int(parts.sizes.sum())
    return ComposedValue(
        logits=rng.normal(size=(*leading, count)) if count else (),
        mean=rng.normal(size=(*leading, parts.numbers)) if parts.numbers else (),
        log_std=rng.normal(size=(*leading, parts.numbers)) if parts.numbers else (),
        value=rng.normal(size=leading),
    )


def row(nest, *index):
    return tree.map_structure(lambda leaf: np.asarray(leaf)[index], nest)


def choice_by_hand(logits, legal, chosen):
    """Log-probability and entropy of one choice."""
    weights = [math.exp(logit) if allowed else 0.0 for logit, allowed in zip(logits, legal, strict=True)]
    probabilities = [weight / sum(weights) for weight in weights]
    return math.log(probabilities[chosen]), -sum(p * math.log(p) for p in probabilities if p > 0)


def numbers_by_hand(mean, log_std, chosen):
    """Log-density and entropy of an array of numbers."""
    log_prob = entropy = 0.0
    for m, s, x in zip(mean, log_std, chosen, strict=True):
        log_prob += -(((x - m) / math.exp(s)) ** 2) / 2 - s - math.log(2 * math.pi) / 2
        entropy += s + math.log(2 * math.pi * math.e) / 2
    return log_prob, entropy


def by_hand(parts, outputs, mask, chosen):
    """What independent parts of one action add up to."""
    ends = np.cumsum(parts.sizes)
    terms = [
        choice_by_hand(outputs.logits[end - size : end], mask[end - size : end], chosen.choices[k])
        for k, (size, end) in enumerate(zip(parts.sizes, ends, strict=True))
    ]
    if parts.numbers:
        terms.append(numbers_by_hand(outputs.mean, outputs.log_std, chosen.numbers))
    return np.sum(terms, axis=0)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_log_probabilities_and_entropies_of_independent_parts_add_up(name, masked):
    parts, rng = ActionParts(ACTIONS[name]), np.random.default_rng(0)
    if masked and not len(parts.sizes):
        return
    policy = action_policy(spec_of(ACTIONS[name], masked), None)
    assert isinstance(policy, ComposedPolicy)
    outputs = random_outputs(parts, rng, 4, 6)
    mask = random_mask(rng, parts.sizes, 4, 6) if masked else np.ones((4, 6, int(parts.sizes.sum())), np.int8)
    seen = np.zeros((4, 6, 3))
    observation = {"action_mask": mask, "observation": seen} if masked else seen
    flat = tree.map_structure(lambda leaf: np.reshape(leaf, (24, *np.shape(leaf)[2:])), (outputs, observation))
    chosen = policy.sample(*flat, tf.range(24), SEED)
    chosen = tree.map_structure(lambda leaf: np.reshape(leaf, (4, 6, *leaf.shape[1:])), chosen)
    found = policy.evaluate(outputs, observation, chosen)
    best = policy.mode(outputs, observation)
    for index in np.ndindex(4, 6):
        own = (parts, row(outputs, *index), mask[index])
        log_prob, entropy = by_hand(*own, row(chosen, *index))
        np.testing.assert_allclose([found.log_prob[index], found.entropy[index]], [log_prob, entropy], rtol=1e-9)
        assert by_hand(*own, row(best, *index))[0] >= log_prob
    action = policy.to_environment(tree.map_structure(tf.constant, chosen))
    again = policy.from_record(action, policy.numbers(chosen))
    for leaf, same in zip(tree.flatten(again), tree.flatten(chosen), strict=True):
        np.testing.assert_array_equal(leaf, same)


def autoregressive(name, masked=False):
    parts = ActionParts(ACTIONS[name])
    head = AutoregressiveValueHead(parts, Layers((8,)), std_from_features=True)
    features = tf.random.stateless_normal((6, 4), seed=(1, 2))
    outputs = head(features)
    for number, variable in enumerate(head.trainable_variables):
        variable.assign(tf.random.stateless_normal(variable.shape, seed=(3, number)))
    policy = action_policy(spec_of(ACTIONS[name], masked), Headed(head))
    assert isinstance(policy, AutoregressivePolicy)
    return parts, head, outputs, policy


@pytest.mark.slow("daily")
@pytest.mark.parametrize("masked", [False, True])
def test_an_autoregressive_policy_is_the_product_of_its_parts(masked):
    parts, head, outputs, policy = autoregressive("nest", masked)
    mask = random_mask(np.random.default_rng(0), parts.sizes, 6) if masked else np.ones((6, 9), np.int8)
    seen = np.zeros((6, 3), np.float32)
    observation = {"action_mask": mask, "observation": seen} if masked else seen
    chosen = policy.sample(outputs, observation, SLOT, SEED)
    found = policy.evaluate(outputs, observation, chosen)
    starts = np.cumsum(parts.sizes) - parts.sizes
    for index in range(6):
        before, terms = [], []
        for number, part in enumerate(parts.parts):
            own = head.part(number, outputs.features[index : index + 1], before)
            if part.discrete:
                start, value = starts[part.start], int(chosen.choices[index, part.start])
                terms.append(choice_by_hand(own.logits[0].numpy(), mask[index, start : start + part.size], value))
                before.append(tf.one_hot([value], part.size))
            else:
                numbers = chosen.numbers[index].numpy()
                terms.append(numbers_by_hand(own.mean[0].numpy(), own.log_std[0].numpy(), numbers))
                before.append(chosen.numbers[index : index + 1])
        expected = np.sum(terms, axis=0)
        np.testing.assert_allclose([found.log_prob[index], found.entropy[index]], expected, rtol=1e-4, atol=1e-4)


def test_an_autoregressive_policy_can_be_that_of_equal_parts_alone():
    # Its second choice repeats the first: the probabilities of the pairs (0, 0) and (1, 1) add up to 1.
    action = (dm_specs.DiscreteArray(2), dm_specs.DiscreteArray(2))
    parts = ActionParts(action)
    head = AutoregressiveValueHead(parts, Layers((2,), tf.identity))
    outputs = head(tf.zeros((1, 1)))
    first, second = head.part(0, outputs.features, []), tf.eye(2)
    assert isinstance(first.logits, tf.Tensor)
    kernels = [variable for variable in head.trainable_variables if "kernel" in variable.name and variable.shape[0] > 1]
    for kernel in kernels[1:3]:
        kernel.assign(20.0 * tf.concat([tf.zeros((kernel.shape[0] - 2, 2)), second], axis=0))
    policy = action_policy(spec_of(action), Headed(head))
    many = head(tf.zeros((400, 1)))
    pairs = policy.sample(many, tf.zeros((400, 3)), tf.range(400), SEED).choices.numpy()
    assert (pairs[:, 0] == pairs[:, 1]).all() and 100 < pairs[:, 0].sum() < 300


def test_samples_are_those_of_the_distribution():
    parts, policy = ActionParts(ACTIONS["multi-discrete"]), action_policy(spec_of(ACTIONS["multi-discrete"]), None)
    number, rng = 20_000, np.random.default_rng(0)
    outputs = random_outputs(parts, rng, 1)._replace(value=())
    outputs = tree.map_structure(lambda leaf: np.tile(leaf, (number, 1)), outputs)
    chosen = policy.sample(outputs, np.zeros((number, 3)), tf.range(number), SEED)
    ends = np.cumsum(parts.sizes)
    for k, (size, end) in enumerate(zip(parts.sizes, ends, strict=True)):
        weights = np.exp(outputs.logits[0, end - size : end])
        share = np.bincount(chosen.choices[:, k], minlength=size) / number
        np.testing.assert_allclose(share, weights / weights.sum(), atol=4 * 0.5 / math.sqrt(number))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("make", ["independent", "autoregressive"])
def test_in_central_inference_an_actor_gets_the_same_samples(make):
    name = "nest"
    parts, _, outputs, policy = autoregressive(name)
    if make == "independent":
        policy = action_policy(spec_of(ACTIONS[name]), None)
        outputs = random_outputs(parts, np.random.default_rng(0), 6)
        outputs = tree.map_structure(lambda leaf: tf.constant(leaf, tf.float32), outputs)
    seeds = tf.constant([[1, 2], [3, 4]])
    together = policy.sample(outputs, tf.zeros((6, 3)), SLOT, seeds)
    for actor, rows in enumerate((slice(0, 3), slice(3, 6))):
        own = tree.map_structure(lambda leaf, rows=rows: leaf[rows], outputs)
        alone = policy.sample(own, tf.zeros((3, 3)), SLOT[rows], seeds[actor])
        for leaf, same in zip(tree.flatten(together), tree.flatten(alone), strict=True):
            np.testing.assert_allclose(leaf[rows], same, atol=1e-5)


def test_single_actions_have_policies_of_their_own():
    discrete = action_policy(spec_of(dm_specs.DiscreteArray(3, np.int64)), None)
    assert isinstance(discrete, DiscretePolicy)
    outputs = PolicyValue(np.array([[0.0, 1.0, 2.0]]), np.zeros(1))
    assert discrete.to_environment(discrete.mode(outputs, np.zeros((1, 3)))).dtype == tf.int64
    log_prob, entropy = discrete.evaluate(outputs, np.zeros((1, 3)), np.array([1]))
    np.testing.assert_allclose([log_prob[0], entropy[0]], choice_by_hand([0.0, 1.0, 2.0], [1, 1, 1], 1))
    gaussian = action_policy(spec_of(BOX), None)
    assert isinstance(gaussian, GaussianPolicy)
    outputs = GaussianValue(np.array([[0.5, -1.0]]), np.array([[0.0, -1.0]]), np.zeros(1))
    np.testing.assert_allclose(gaussian.to_environment(gaussian.mode(outputs, None)), [[2.0, 0.0]])
    found = gaussian.evaluate(outputs, None, np.array([[1.0, 2.0]]))
    np.testing.assert_allclose(np.ravel(found), numbers_by_hand([0.5, -1.0], [0.0, -1.0], [1.0, 2.0]))
    assert gaussian.from_record("action", "numbers") == "numbers" and discrete.from_record("action", ()) == "action"
    assert discrete.numbers("chosen") == () and gaussian.numbers("chosen") == "chosen"
    chosen = Chosen("choices", "numbers")
    assert action_policy(spec_of(ACTIONS["nest"]), None).numbers(chosen) == "numbers"
