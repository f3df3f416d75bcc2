"""Networks and datasets are built, and functions are traced, by one thread at a time."""

import threading
import time

import numpy as np
import tensorflow as tf
from dm_env import specs

from callboard.agents.fast_function import CompiledFunction, CompiledOnFirstCall
from callboard.launch.nodes.learning.prepared_learner import iterators
from callboard.networks.network import Network
from callboard.networks.recurrent import FeedForwardCore
from callboard.networks.torsos.torso_factory import make_torso
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(2))


def test_networks_and_functions_of_several_threads_are_made_in_turn():
    inside, most = [], []

    def slow(observation, training=False):
        inside.append(observation)
        time.sleep(0.02)
        most.append(len(inside))
        inside.pop()
        return tf.identity(observation)

    def head(features):
        return features

    def torso(spec):
        slow(tf.zeros(2))
        return tf.keras.layers.Flatten()

    def read():
        assert next(iterators(lambda: tf.data.Dataset.range(1).map(slow))()) == 0

    makers = [
        read,
        lambda: make_torso(SPEC, torso),
        lambda: Network(SPEC, slow, FeedForwardCore(), head),
        lambda: CompiledFunction(slow, tf.TensorSpec((1, 2), tf.float32)),
        lambda: CompiledOnFirstCall(slow)(tf.zeros((1, 2))),
    ]
    threads = [threading.Thread(target=make) for make in makers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 2 * len(makers)
