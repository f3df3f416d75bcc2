"""Networks of SAC for composed actions."""

import numpy as np
import pytest
import tensorflow as tf
from composed_actions import ACTIONS, random_mask, spec_of
from dm_env import specs as dm_specs

from callboard.networks.actions.action_parts import ActionParts, one_hot_choices
from callboard.networks.actor_critics.actor_critic_factory import actor_critic_networks
from callboard.networks.actor_critics.composed_actor_critic import SoftPartsHead
from callboard.networks.network import Inputs
from callboard.networks.torsos.dense import Layers

BOUNDED = {"arm": ACTIONS["nest"]["arm"], "move": dm_specs.BoundedArray((2,), np.float32, -1.0, 3.0)}
PARTS = ActionParts(BOUNDED)
FEATURES = tf.random.stateless_normal((5, 3), seed=(1, 2))


def test_masked_values_have_no_probability():
    parts = PARTS
    mask = random_mask(np.random.default_rng(0), parts.sizes, 5)
    policy = SoftPartsHead(parts, Layers((4,)))(FEATURES, tf.constant(mask, tf.bool))
    probability = np.exp(policy.choices.log_probs())
    rows = parts.legal_rows(tf.constant(mask, tf.bool)).numpy()
    assert probability.shape == (5, 3, 4) and not probability[~rows].any() and (probability[rows] > 0).all()
    assert policy.numbers.mean.shape == (5, 2)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("action", [BOUNDED, ACTIONS["multi-discrete"], (BOUNDED["move"],)])
def test_the_value_of_probabilities_is_the_mean_over_all_choices(action):
    networks, parts = actor_critic_networks(spec_of(action), hidden_sizes=(4,)), ActionParts(action)
    rng, seen = np.random.default_rng(0), FEATURES
    numbers = rng.uniform(-1, 1, (5, parts.numbers)).astype(np.float32) if parts.numbers else ()
    policy, _ = networks.policy.step(Inputs(seen), (), tf.ones(5, tf.bool))
    if not len(parts.sizes):
        assert policy.choices == () and networks.critic(seen, numbers, ()).shape == (2, 5)
        return
    probability = np.exp(policy.choices.log_probs())
    expected = np.zeros((2, 5))
    for choices in np.ndindex(*parts.sizes):
        q = networks.critic(seen, numbers, one_hot_choices(parts, np.tile(choices, (5, 1)), tf.float32))
        weight = np.prod([probability[:, k, value] for k, value in enumerate(choices)], axis=0)
        expected += weight * np.stack(q)
    found = np.stack(networks.critic(seen, numbers, tf.constant(probability)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for online, target in zip(networks.critic.variables, networks.target_critic.variables, strict=True):
        np.testing.assert_array_equal(online, target)


@pytest.mark.slow("daily")
def test_all_networks_share_one_normalizer_of_observations():
    networks = actor_critic_networks(spec_of(BOUNDED), hidden_sizes=(4,), normalize_observations=True)
    plain = actor_critic_networks(spec_of(BOUNDED), hidden_sizes=(4,))
    assert plain.normalizer is None and networks.normalizer is not None
    for mine, other in ((networks.policy, plain.policy), (networks.critic, plain.critic)):
        for variable, value in zip(mine.trainable_variables, other.trainable_variables, strict=True):
            variable.assign(value)
    seen = 10 + 3 * FEATURES
    networks.normalizer.update(seen, leading=1)
    numbers, weight = tf.zeros((5, 2)), one_hot_choices(PARTS, np.zeros((5, 3), int), tf.float32)
    normalized = networks.normalizer(seen)
    values = networks.critic(seen, numbers, weight)
    np.testing.assert_allclose(values, plain.critic(normalized, numbers, weight), rtol=1e-5)
    assert not np.allclose(values, plain.critic(seen, numbers, weight))
    begins = tf.ones(5, tf.bool)
    policy, _ = networks.policy.step(Inputs(seen), (), begins)
    same, _ = plain.policy.step(Inputs(normalized), (), begins)
    np.testing.assert_allclose(policy.numbers.mean, same.numbers.mean, rtol=1e-5)
