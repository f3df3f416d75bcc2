"""A running normalizer on one device and on two."""

import numpy as np
import tensorflow as tf
from dm_env import specs

from callboard.networks.normalization import RunningNormalizer

CONSTANTS = (0.3, 8.9075, 1e4, 1e6)


def batches():
    """Features that are constant, that are far from 0 and vary little, and that differ between the replicas."""
    generator = np.random.default_rng(0)
    for _ in range(3):
        constant = np.tile(CONSTANTS, (5, 8, 1))
        nearly_constant = 1000 + 0.01 * generator.normal(size=(5, 8, 1))
        by_replica = 1e6 + np.repeat([0.0, 1.0], 4)[:, np.newaxis] + np.zeros((5, 1, 1))
        observation = np.concatenate([constant, nearly_constant, by_replica], axis=-1).astype(np.float32)
        # The second half is ignored.
        yield observation, (generator.random((5, 8)) < 0.5) & (np.arange(8) < 4)


def check(strategy, masked):
    with strategy.scope():
        normalizer = RunningNormalizer(specs.Array((len(CONSTANTS) + 2,), np.float32))

    def update_replica(observation, mask):
        normalizer.update(observation, weight=mask if masked else None)

    def shares(leaf):
        parts = np.split(leaf, strategy.num_replicas_in_sync, axis=1)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    update = tf.function(lambda *batch: strategy.run(update_replica, batch), autograph=False)
    taken = []
    for observation, mask in batches():
        update(shares(observation), shares(mask))
        taken.append(observation[mask] if masked else observation.reshape(40, -1))
    for variable in normalizer.variables:
        copies = strategy.experimental_local_results(variable)
        assert all(np.array_equal(copy, copies[0]) for copy in copies)
    everything = np.concatenate(taken).astype(np.float64)
    expected = (everything - everything.mean(0)) / np.sqrt(everything.var(0) + 1e-8)
    np.testing.assert_allclose(normalizer(everything.astype(np.float32)), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(expected[:, : len(CONSTANTS)], 0, atol=1e-5)


def check_all():
    for strategy in (tf.distribute.OneDeviceStrategy("/cpu:0"), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
        for masked in (False, True):
            check(strategy, masked)
