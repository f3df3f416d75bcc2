"""Discounted returns of episodes so far, counted beside what replay stores."""

import numpy as np
import pytest
import tensorflow as tf
from numbered_blocks import ENVS, layout_of, numbered
from reading import read_batches

from callboard.replay import DiscountedReturns, SequenceQueue

LENGTH, DISCOUNT = 4, 0.5


def scripted(timestep):
    """Episodes of three timesteps, with the number of the timestep as reward."""
    ones = np.ones(ENVS, np.float32)
    first, last = (np.full(ENVS, timestep % 3 == begin) for begin in (0, 2))
    return numbered(0)._replace(first=first, last=last, reward=timestep * ones)


def by_hand(timestep):
    begin = timestep - timestep % 3
    return sum(DISCOUNT ** (timestep - t) * t for t in range(begin, timestep + 1))


def test_returns_begin_anew_with_each_episode_and_count_a_repeated_timestep_once():
    returns = DiscountedReturns(DISCOUNT, ENVS)
    for timestep in range(7):
        record = scripted(timestep)
        before_acting = returns.after(record._replace(reward=np.zeros(ENVS, np.float32)))
        assert before_acting.dtype == np.float32
        np.testing.assert_allclose(returns.after(record, again=True), [by_hand(timestep)] * ENVS)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("max_policy_lag", [None, 0], ids=["shared end", "repeated end"])
def test_a_queue_gives_the_returns_of_its_transitions(serve, max_policy_lag):
    layout = layout_of(scripted(0))._replace(actors=1)
    queue = SequenceQueue(layout, LENGTH, ENVS, 4, max_policy_lag=max_policy_lag, returns_discount=DISCOUNT)
    replay = serve(queue.tables())
    writer = queue.writer(replay, 0)
    for timestep in range(2 * LENGTH + 1):
        writer.append(scripted(timestep), ())
        if max_policy_lag is not None and timestep == LENGTH:
            writer.append(scripted(timestep), ())
    assert writer.ready(10, max_pending=0)
    samples = read_batches(queue.dataset(replay, tf.distribute.InputContext()).dataset, 2)
    for number, sample in enumerate(samples):
        expected = [[by_hand(number * LENGTH + t)] * ENVS for t in range(LENGTH)]
        np.testing.assert_allclose(sample.discounted_return, expected)
