"""PPO's policy: the returns that it adds to the record, and how it acts in evaluation."""

import numpy as np
import pytest
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


@pytest.mark.parametrize("agent", [Ppo(discount=0.5), Ppo(discount=0.9, normalization_discount=0.5)])
def test_the_last_reward_of_an_episode_that_is_reset_in_the_same_step_belongs_to_it(agent):
    policy = agent.make_policy(agent.make_networks(layout_of(SPEC)), "train")
    state, returns, resets = policy.initial_state(1), [], []
    ended = (timestep(4, False, last=True), timestep(0, True), timestep(3, False))
    for each in (
        timestep(0, True),
        timestep(1, False),
        timestep(1, False),
        timestep(8, True),
        timestep(2, False),
        *ended,
    ):
        resets.append(bool(state.reset))
        _, extras, state = policy(each, state, tf.zeros(1, tf.int32), tf.constant([1, 2]))
        returns.append(float(extras.discounted_return))
    assert returns == [0, 1, 1.5, 8.75, 2, 5, 0, 3]
    # No transition leads to the first timestep, nor to the one after the last of an episode.
    assert resets == [True, False, False, False, False, False, True, False]


def test_evaluation_takes_the_most_likely_action():
    agent = Ppo()
    networks = agent.make_networks(layout_of(CONTINUOUS))
    policy: PpoPolicy = agent.make_policy(networks, "evaluate")
    actions = [policy(timestep(0, True), policy.initial_state(1), tf.zeros(1, tf.int32), (1, n))[0] for n in range(2)]
    np.testing.assert_array_equal(actions[0], actions[1])
    outputs, _ = networks.network.step(Inputs(tf.zeros((1, 2))), (), tf.ones(1, tf.bool))
    mean = outputs.mean.numpy()[0]
    np.testing.assert_allclose(actions[0], [[1 + 2 * mean[0], max(0, mean[1])]], rtol=1e-6)
