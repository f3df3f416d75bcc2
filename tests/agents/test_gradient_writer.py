"""Gradients of blocks of timesteps: which timesteps they are of, and their values."""

import numpy as np
import pytest
import tensorflow as tf
from small_worlds import SPEC, layout_of

from callboard.agents.gradient_step import LossOutput
from callboard.agents.gradient_writer import GradientWriter, with_gradient
from callboard.data import Record
from callboard.replay import GradientQueue

ENVS, LENGTH = 2, 3


class Written:
    """Keeps what it is given, as the queue would."""

    def __init__(self):
        self.items = []
        self.items_written = 0

    def append(self, item):
        self.items.append(item)
        self.items_written += 1


def layout():
    return layout_of()._replace(
        record=Record(
            observation=tf.TensorSpec((2,), tf.float32),
            first=tf.TensorSpec((), tf.bool),
            last=tf.TensorSpec((), tf.bool),
            action=tf.TensorSpec((), tf.int32),
            reward=tf.TensorSpec((), tf.float32),
            discount=tf.TensorSpec((), tf.float32),
            extras=(),
            version=tf.TensorSpec((2,), tf.int32),
        ),
        state=tf.TensorSpec((1,), tf.float32),
        spec=SPEC,
    )


def record_of(t: int) -> Record:
    return Record(
        observation=np.full((ENVS, 2), t, np.float32),
        first=np.zeros(ENVS, bool),
        last=np.zeros(ENVS, bool),
        action=np.zeros(ENVS, np.int32),
        reward=np.array([t, 10 * t], np.float32),
        discount=np.ones(ENVS, np.float32),
        extras=(),
        version=np.tile(np.array([0, t], np.int32), (ENVS, 1)),
    )


@pytest.mark.parametrize("keeps", [False, True])
def test_each_block_has_its_rewards_its_first_state_and_its_last_observation(keeps):
    w, unused = tf.Variable([2.0, 3.0]), tf.Variable(tf.ones((2, 2)))

    def loss(sample):
        last = tf.reduce_sum(sample.record.observation[-1, 0, 0])
        parts = w * tf.stack([tf.reduce_sum(sample.record.reward), last + tf.reduce_sum(sample.state)])
        return LossOutput(tf.reduce_sum(parts), {"b": w[1], "a": w[0]})

    written = Written()
    queue = GradientQueue(layout(), LENGTH, waiting=3, keeps_observations=keeps)
    writer = GradientWriter(written, queue, layout(), loss, [w, unused])
    for t in range(2 * LENGTH + 1):
        # The arrays of a record may be used again after it was appended.
        record = record_of(t)
        writer.append(record, np.full((ENVS, 1), 100 * t, np.float32))
        record.reward[:] = np.nan
    assert writer.items_written == len(written.items) == 2
    for block, item in enumerate(written.items):
        times = range(block * LENGTH, (block + 1) * LENGTH)
        rewards, later = 11 * sum(times), times[-1] + 1 + ENVS * 100 * times[0]
        np.testing.assert_allclose(item.gradient, [rewards, later, 0, 0, 0, 0])
        np.testing.assert_allclose(item.metrics, [2 * rewards + 3 * later, 2, 3])
        assert item.version[:, :, 1].tolist() == [[t, t] for t in times]
        assert np.shape(item.observation) == ((LENGTH + 1, ENVS, 2) if keeps else (0,))
        w.assign([2.0, 3.0])


def test_a_scalar_with_a_value_and_a_gradient():
    variables = [tf.Variable([[1.0, 2.0]]), tf.Variable(3.0)]
    with tf.GradientTape() as tape:
        value = with_gradient(7.0, tf.constant([4.0, 5.0, 6.0]), variables)
    assert float(value) == 7.0
    first, second = tape.gradient(value, variables)
    assert first.numpy().tolist() == [[4.0, 5.0]] and float(second) == 6.0
    assert np.isnan(with_gradient(7.0, tf.constant([4.0, np.nan, 6.0]), variables))
