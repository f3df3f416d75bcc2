"""PPO's policy: how it acts in evaluation."""

import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs
from small_worlds import SPEC, layout_of

from callboard.agents.policies.ppo_policy import PpoPolicy
from callboard.agents.ppo import Ppo
from callboard.data import Timestep
from callboard.networks.network import Inputs

CONTINUOUS = SPEC._replace(action=dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [3.0, np.inf]))


def timestep(reward, first, last=False):
    flags = [np.full(1, flag) for flag in (first, last)]
    return Timestep(np.zeros((1, 2), np.float32), np.array([reward], np.float32), np.ones(1), *flags)


def test_evaluation_takes_the_most_likely_action():
    agent = Ppo()
    networks = agent.make_networks(layout_of(CONTINUOUS))
    policy: PpoPolicy = agent.make_policy(networks, "evaluate")
    actions = [policy(timestep(0, True), policy.initial_state(1), tf.zeros(1, tf.int32), (1, n))[0] for n in range(2)]
    np.testing.assert_array_equal(actions[0], actions[1])
    outputs, _ = networks.network.step(Inputs(tf.zeros((1, 2))), (), tf.ones(1, tf.bool))
    mean = outputs.mean.numpy()[0]
    np.testing.assert_allclose(actions[0], [[1 + 2 * mean[0], max(0, mean[1])]], rtol=1e-6)
