"""Reductions over replicas and the index of a replica's share, on one device and on two."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.prioritization import importance_weights
from callboard.agents.losses.replicas import global_index, largest_over_replicas, sum_over_replicas
from callboard.networks.stateless_random import standard_normal


def test_without_a_strategy_they_are_those_of_the_tensor():
    x = np.array([[1.0, -7.0, 3.0], [2.0, 5.0, 4.0]])
    assert float(largest_over_replicas(x)) == 5 and largest_over_replicas(x).shape == ()
    assert float(sum_over_replicas(x)) == 8 and sum_over_replicas(x).shape == ()
    assert largest_over_replicas(x).dtype == sum_over_replicas(x).dtype == tf.float64
    index = global_index(4)
    assert index.dtype == tf.int32
    np.testing.assert_array_equal(index, [0, 1, 2, 3])


@pytest.mark.parametrize("reduction", [largest_over_replicas, sum_over_replicas])
def test_no_gradient_flows_through_a_reduction(reduction):
    x = tf.constant([1.0, 5.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        reduced = reduction(x)
    assert tape.gradient(reduced, x) is None


def test_the_size_of_a_share_may_be_unknown_in_a_graph():
    index = tf.function(lambda x: global_index(tf.shape(x)[0]), input_signature=[tf.TensorSpec((None,))])
    np.testing.assert_array_equal(index(np.zeros(3, np.float32)), [0, 1, 2])


PROBABILITY = np.array([0.5, 0.25, 0.125, 0.5, 0.0625, 0.25])


def check_batches(strategy):
    """The global batch of six, as seen by two replicas and by one."""
    replicas = strategy.num_replicas_in_sync
    share = 6 // replicas

    def value(context):
        start = share * context.replica_id_in_sync_group
        return tf.constant(PROBABILITY[start : start + share])

    def replica(part):
        index = global_index(share)
        weights = importance_weights(part, 4, 1.0, largest_over_replicas)
        noise = standard_normal((1, 2), "noise", index, (2,))
        return index, weights, noise, largest_over_replicas(part), sum_over_replicas(part)

    parts = strategy.experimental_distribute_values_from_function(value) if replicas > 1 else tf.constant(PROBABILITY)
    results = tf.function(lambda part: strategy.run(replica, args=(part,)), autograph=False)(parts)
    index, weights, noise, largest, total = (strategy.experimental_local_results(result) for result in results)
    np.testing.assert_array_equal(np.concatenate(index), np.arange(6))
    np.testing.assert_allclose(np.concatenate(weights), 0.0625 / PROBABILITY)
    np.testing.assert_allclose(np.concatenate(noise), standard_normal((1, 2), "noise", np.arange(6), (2,)), rtol=1e-6)
    assert [float(number) for number in largest] == [0.5] * replicas
    assert [float(number) for number in total] == [1.6875] * replicas


def check_all():
    for strategy in (
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        tf.distribute.OneDeviceStrategy("/cpu:0"),
        tf.distribute.get_strategy(),
    ):
        check_batches(strategy)


@pytest.mark.slow
def test_replicas_agree_on_the_whole_batch(on_two_devices):
    on_two_devices(__file__, "check_all")
