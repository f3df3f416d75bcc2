"""Gradients of blocks of timesteps: which timesteps they are of, and their values."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import SPEC, layout_of

from callboard.agents.learning.gradient_step import LossOutput
from callboard.agents.learning.gradient_writer import GradientWriter, with_gradient
from callboard.data import Record
from callboard.replay import GradientQueue, initial_frames, push_frames, stacked_spec

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


def test_a_block_has_its_returns_and_which_transitions_are_valid():
    written = Written()
    queue = GradientQueue(layout(), LENGTH, waiting=3, keeps_observations=False, returns_discount=0.5)
    weight = tf.Variable(0.0)
    writer = GradientWriter(written, queue, layout(), lambda sample: LossOutput(weight + 0, {}), [weight])
    for t in range(2 * LENGTH + 1):
        record = record_of(t)._replace(last=np.array([t == 2, False]), first=np.array([t == 3, False]))
        writer.append(record, np.zeros((ENVS, 1), np.float32))
    returns = np.concatenate([item.discounted_return for item in written.items])
    np.testing.assert_allclose(returns[:, 0], [0, 1, 2.5, 3, 5.5, 7.75])
    valid = np.concatenate([item.valid for item in written.items])
    assert valid[:, 0].tolist() == [True, True, False, True, True, True] and valid[:, 1].all()
    np.testing.assert_allclose(returns[:, 1], 10 * np.array([0, 1, 2.5, 4.25, 6.125, 8.0625]))
    assert queue.signature().discounted_return.shape == returns[:LENGTH].shape


def test_a_scalar_with_a_value_and_a_gradient():
    variables = [tf.Variable([[1.0, 2.0]]), tf.Variable(3.0)]
    with tf.GradientTape() as tape:
        value = with_gradient(7.0, tf.constant([4.0, 5.0, 6.0]), variables)
    assert float(value) == 7.0
    first, second = tape.gradient(value, variables)
    assert first.numpy().tolist() == [[4.0, 5.0]] and float(second) == 6.0
    assert np.isnan(with_gradient(7.0, tf.constant([4.0, np.nan, 6.0]), variables))


def test_the_loss_is_of_stacks_of_frames():
    """Of those that a policy with the same frames has seen, over the start of an episode in a block."""
    stack = 3
    spec = SPEC._replace(observation=dm_specs.BoundedArray((2, 2, 1), np.uint8, 0, 255))
    frames = initial_frames(stacked_spec(spec, stack).observation, stack, ENVS)
    record = layout().record._replace(observation=tf.TensorSpec((2, 2, 1), tf.uint8))
    state = tree.map_structure(lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), frames)
    stacked_layout = layout()._replace(spec=spec, record=record, state=state)
    w = tf.Variable([1.0])

    def loss(sample):
        assert sample.state == ()
        # Each stack as one number: its frames are the digits.
        digits = tf.cast(sample.record.observation[:, 0, 0, 0], tf.float32)
        numbers = tf.linalg.matvec(digits, [100.0, 10.0, 1.0])
        return LossOutput(tf.reduce_sum(w * 0.0), {str(row): numbers[row] for row in range(LENGTH + 1)})

    written = Written()
    queue = GradientQueue(stacked_layout, LENGTH, waiting=3, keeps_observations=False)
    writer = GradientWriter(written, queue, stacked_layout, loss, [w], stack)
    for t in range(1, 2 * LENGTH + 2):
        own = record_of(t)._replace(observation=np.full((ENVS, 2, 2, 1), t, np.uint8), first=np.full(ENVS, t in (1, 6)))
        writer.append(own, tree.map_structure(np.asarray, frames))
        _, frames = push_frames(own, frames, stack)
    assert [item.metrics[1:].tolist() for item in written.items] == [[111, 112, 123, 234], [234, 345, 666, 667]]
