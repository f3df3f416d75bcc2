"""What agents that learn from their newest weights' data share: checks of sizes, and batches that are new enough."""

import numpy as np
import pytest
import tensorflow as tf
from small_worlds import layout_of

from callboard.agents.learning.on_policy import FreshBatches, check_batch_sizes, joined
from callboard.data import Record, Sample
from callboard.errors import CallboardError


def sample_of(step: int, batch: int = 2, reward: float = 0.0) -> Sample:
    """A sequence of one transition per environment, acted by the weights of a learner step."""
    version = np.zeros((1, batch, 2), np.int32)
    version[..., 1] = step
    flags = np.zeros((2, batch), bool)
    rewards = np.full((1, batch), reward, np.float32)
    return Sample(Record((), flags, flags, (), rewards, np.ones((1, batch)), (), version), np.full((batch, 3), reward))


def test_a_batch_is_made_of_parts_that_are_new_enough():
    batches = FreshBatches(tf.distribute.get_strategy(), elements=2, max_policy_lag=1)
    # Steps 7 and 9 are of weights from before an older checkpoint was restored.
    data = iter(map(sample_of, (2, 3, 1, 7, 3, 9, 0, 4, 4)))
    first, second = batches.take(data, 3), batches.take(data, 4)
    assert [one.record.version[0, 0, 1] for one in first.elements] == [2, 3]
    assert (first.policy_lag, first.dropped) == (0.5, 0)
    assert [one.record.version[0, 0, 1] for one in second.elements] == [3, 4]
    assert (second.policy_lag, second.dropped) == (0.5, 4)


def test_the_lag_is_a_mean_over_the_valid_transitions_of_all_parts():
    def ended(step, batch, invalid):
        sample = sample_of(step, batch)
        last = sample.record.last.copy()
        last[0, :invalid] = True
        return sample._replace(record=sample.record._replace(last=last))

    def lag_of(*parts):
        batches = FreshBatches(tf.distribute.get_strategy(), elements=len(parts), max_policy_lag=4)
        return batches.take(iter(parts), 4).policy_lag

    # Ages of each part are the same; one of four transitions is valid in the first, and two of two in the second.
    assert lag_of(ended(4, 4, 3), ended(1, 2, 0)) == pytest.approx(2.0)
    assert lag_of(ended(4, 2, 2), ended(1, 2, 2)) == 0.0


def test_parts_are_joined_along_the_batch():
    sample = joined([sample_of(0, batch=2, reward=1.0), sample_of(0, batch=1, reward=2.0)])
    np.testing.assert_array_equal(sample.record.reward, [[1.0, 1.0, 2.0]])
    assert sample.record.first.shape == (2, 3)
    np.testing.assert_array_equal(sample.state, [[1.0] * 3, [1.0] * 3, [2.0] * 3])


def test_sizes_that_fit_are_fine():
    check_batch_sizes(layout_of(actors=2, envs_per_actor=4, learners=2, max_steps=80), unroll_length=5, batch_size=16)


@pytest.mark.parametrize(
    "layout, batch_size, message",
    [
        ({"actors": 2, "envs_per_actor": 8}, 24, "a multiple of 16 .2 actors x 8 environments., not 24"),
        ({"actors": 3, "envs_per_actor": 2, "learners": 2}, 12, "3 actors cannot be shared evenly by 2 learners"),
        ({"envs_per_actor": 4, "max_steps": 39}, 8, "max_steps = 39 are fewer than the 40 of an iteration"),
        # Three agents in each environment: 24 slots and 36 sequences, of which the user has written 8 and 12.
        (
            {"actors": 2, "envs_per_actor": 12, "agents_per_env": 3},
            36,
            "a multiple of 8 .2 actors x 4 environments., not 12",
        ),
        (
            {"envs_per_actor": 12, "agents_per_env": 3, "max_steps": 39},
            24,
            "max_steps = 39 are fewer than the 40 of an iteration",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_one_line(layout, batch_size, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check_batch_sizes(layout_of(**layout), unroll_length=5, batch_size=batch_size)
    assert "\n" not in str(caught.value)
