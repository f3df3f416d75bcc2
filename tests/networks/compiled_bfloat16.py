"""Computes features and gradients of a torso in bfloat16, compiled.

A process of its own, since whether oneDNN is on is decided when TensorFlow is imported.
"""

import numpy as np
import tensorflow as tf
from dm_env import specs

from callboard.agents.fast_function import CompiledFunction
from callboard.data import Nest
from callboard.networks.factory import make_torso
from callboard.specs import EnvironmentSpec

SHAPE = (64, 64, 3)


def main() -> None:
    spec = EnvironmentSpec(specs.BoundedArray(SHAPE, np.uint8, 0, 255), specs.DiscreteArray(3))
    torso = make_torso(spec, "nature", precision="bfloat16")
    images = tf.constant(np.random.default_rng(0).integers(0, 256, (4, *SHAPE)), tf.uint8)
    torso(images)

    def update(images: tf.Tensor) -> Nest:
        with tf.GradientTape() as tape:
            features = torso(images, training=True)
            loss = tf.reduce_sum(tf.square(features))
        return features, tape.gradient(loss, torso.trainable_variables)

    features, gradients = CompiledFunction(update, tf.TensorSpec(images.shape, images.dtype))(images)
    assert all(np.isfinite(part).all() and np.any(part) for part in (features, *gradients))


if __name__ == "__main__":
    main()
