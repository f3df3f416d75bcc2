"""Networks for SAC with discrete actions: their inputs, outputs and variables."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.networks.actor_critics.actor_critic_factory import actor_critic_networks
from callboard.networks.distributions import Categorical
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

VECTOR = EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(3))
IMAGE = VECTOR._replace(observation=specs.BoundedArray((20, 20, 3), np.uint8, 0, 255))


@pytest.mark.slow("daily")
@pytest.mark.parametrize("spec", [VECTOR, IMAGE], ids=["vector", "image"])
def test_policy_and_critics_give_all_actions(spec):
    networks = actor_critic_networks(spec, hidden_sizes=(16,), temperature=0.5)
    before = len(networks.variables)
    rng = np.random.default_rng(0)
    observation = (2 * rng.random((5, *spec.observation.shape))).astype(spec.observation.dtype)
    policy, _ = networks.policy.step(Inputs(observation), (), np.zeros(5, bool))
    assert isinstance(policy, Categorical) and policy.logits.shape == (5, 3)
    np.testing.assert_allclose(tf.nn.softmax(policy.logits), 1 / 3, atol=0.2)
    q1, q2 = networks.critic(observation)
    assert q1.shape == q2.shape == (5, 3) and np.abs(q1 - q2).max() > 1e-6
    for one, other in zip(networks.target_critic(observation), (q1, q2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert networks.bounds is None and float(networks.alpha) == pytest.approx(0.5)
    trained = {id(one) for one in (*networks.policy.trainable_variables, *networks.critic.trainable_variables)}
    assert len(networks.variables) == before == len(trained) + len(networks.target_critic.variables) + 1
