"""A learner of a batch-normalized policy on one device and on two."""

import numpy as np
import tensorflow as tf
from dm_env import specs

from callboard.agents.learning.gradient_step import GradientStep, LossOutput, Objective
from callboard.networks.factory import policy_value_network
from callboard.networks.network import Inputs
from callboard.networks.torsos.residual import BatchNormalization
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.BoundedArray((8, 8, 3), np.uint8, 0, 255), specs.DiscreteArray(4))
STEPS, BATCH = 3, 4


def make_torso(spec):
    return tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.Conv2D(4, 3, 2, kernel_regularizer=tf.keras.regularizers.L2(0.1)),
            BatchNormalization(momentum=0.9),
            tf.keras.layers.Flatten(),
        ]
    )


def learn(strategy):
    """All variables after two steps on the same batches, which are split over the replicas."""
    observation = np.random.default_rng(0).integers(0, 256, (2, STEPS, BATCH, 8, 8, 3)).astype(np.uint8)
    # The halves differ, so that statistics of one half alone are far from those of both.
    observation[:, :, BATCH // 2 :] //= 8
    share = BATCH // strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        network = policy_value_network(SPEC, make_torso)

        def loss(batch):
            outputs, _ = network.unroll(Inputs(batch), (), tf.zeros((STEPS, share), tf.bool), training=True)
            per_element = tf.square(outputs.value - 1) + tf.reduce_sum(tf.square(outputs.logits), axis=-1)
            return LossOutput(tf.reduce_sum(per_element) / (STEPS * BATCH) + network.regularization_loss(), {})

        optimizer = tf.keras.optimizers.SGD(0.05)
        step = GradientStep([Objective("loss", network.trainable_variables, optimizer)], strategy)
        update = tf.function(lambda batch: step(loss, batch)[0], autograph=False)

    def batches(context):
        def of_replica(index):
            return observation[:, :, index * share : (index + 1) * share]

        # Replicas of one worker are given one element after another.
        elements = [of_replica(index)[step] for step in range(2) for index in range(strategy.num_replicas_in_sync)]
        return tf.data.Dataset.from_tensor_slices(np.stack(elements))

    iterator = iter(strategy.distribute_datasets_from_function(batches))
    losses = [float(update(next(iterator))["loss"]) for _ in range(2)]
    copies = [strategy.experimental_local_results(variable) for variable in network.variables]
    for copies_of_one in copies:
        for copy in copies_of_one[1:]:
            np.testing.assert_array_equal(copies_of_one[0], copy)
    return losses, {variable.name: variable.numpy() for variable in network.variables}


def check_all():
    losses, expected = learn(tf.distribute.get_strategy())
    losses_of_two, found = learn(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    np.testing.assert_allclose(losses_of_two, losses, rtol=1e-4)
    for (name, one), two in zip(expected.items(), found.values(), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-3, atol=1e-4, err_msg=name)
