"""The network for policy and value that goes with each kind of action."""

import numpy as np
import pytest
import tensorflow as tf
from composed_actions import ACTIONS, BOX, spec_of
from dm_env import specs as dm_specs

from callboard.networks.action_policy import action_policy
from callboard.networks.composed_heads import AutoregressiveValue, ComposedValue
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PolicyValueNetworkSettings, PopArtSettings
from callboard.networks.policy_networks import policy_network

SETTINGS = {"hidden_sizes": (4,), "activation": "tanh", "lstm_size": 4, "head_sizes": (4,)}


def made(action, **changed):
    return policy_network(spec_of(action), PolicyValueNetworkSettings(**{**SETTINGS, **changed}), initial_log_std=-0.5)


@pytest.mark.parametrize(
    "action, changed, outputs",
    [
        (dm_specs.DiscreteArray(3), {"autoregressive": True}, PolicyValue),
        (BOX, {}, GaussianValue),
        (ACTIONS["nest"], {}, ComposedValue),
        (ACTIONS["multi-discrete"], {"shared": False, "core": "lstm"}, ComposedValue),
        (ACTIONS["nest"], {"autoregressive": True}, AutoregressiveValue),
        (ACTIONS["nest"], {"autoregressive": True, "shared": False, "core": "gru"}, AutoregressiveValue),
        (ACTIONS["nest"], {"autoregressive": True, "popart": PopArtSettings(enabled=True)}, AutoregressiveValue),
    ],
)
def test_outputs(action, changed, outputs):
    network = made(action, **changed)
    observation, first = tf.random.stateless_normal((5, 2, 3), seed=(1, 2)), tf.zeros((5, 2), tf.bool)
    before = len(network.variables)
    unrolled, _ = network.unroll(Inputs(observation), network.initial_state(2), first, training=True)
    assert isinstance(unrolled, outputs) and unrolled.value.shape == (5, 2)
    policy = action_policy(network.spec, network)
    chosen = policy.mode(unrolled, observation)
    log_prob, entropy = policy.evaluate(unrolled, observation, chosen)
    assert log_prob.shape == entropy.shape == (5, 2) and np.isfinite(log_prob).all()
    # Everything was built by the constructor.
    assert len(network.variables) == before
    if hasattr(unrolled, "log_std"):
        np.testing.assert_array_equal(unrolled.log_std, np.full_like(unrolled.log_std, -0.5))


def test_a_head_of_your_own_outputs_what_the_default_one_does():
    network = made(ACTIONS["multi-discrete"], head=f"{__name__}:own_head", head_options={"logit": 2.0})
    outputs, _ = network.step(Inputs(tf.zeros((2, 3))), (), tf.ones(2, tf.bool))
    np.testing.assert_array_equal(outputs.logits, np.full((2, 9), 2.0))


def own_head(spec, logit):
    return lambda features: ComposedValue(tf.fill((2, 9), logit), (), (), tf.zeros(2))
