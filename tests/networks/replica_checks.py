"""Weights as seen from two replicas."""

import numpy as np
import tensorflow as tf

from callboard.networks.target_update import copy_weights, copy_weights_every, move_weights

SHAPES = ((3, 2), (4,), ())


class Weights(tf.Module):
    def __init__(self, value):
        super().__init__()
        self.parts = [tf.Variable(tf.fill(shape, value)) for shape in SHAPES]


def everywhere(strategy, module):
    """The values of all elements of all copies."""
    copies = [copy for variable in module.variables for copy in strategy.experimental_local_results(variable)]
    assert len(copies) == 3 * strategy.num_replicas_in_sync
    return np.unique(np.concatenate([copy.numpy().ravel() for copy in copies]))


def check_target_updates(strategy):
    with strategy.scope():
        source, target = Weights(8.0), Weights(0.0)

    def in_replicas(function):
        return lambda *arguments: strategy.run(function, args=arguments)

    def in_scope(function):
        def run(*arguments):
            with strategy.scope():
                function(*arguments)

        return run

    def outside(function):
        return function

    for compiled in (False, True):
        for place in (in_replicas, in_scope, outside):

            def make(function, place=place, compiled=compiled):
                placed = place(function)
                return tf.function(placed, autograph=False) if compiled else placed

            move = make(lambda: move_weights(source, target, 0.25))
            copy = make(lambda: copy_weights(source, target))
            copy_every = make(lambda step: copy_weights_every(3, step, source, target))

            for variable in target.variables:
                variable.assign(tf.zeros(variable.shape))
            for expected in (2.0, 3.5, 4.625):
                move()
                np.testing.assert_array_equal(everywhere(strategy, target), [expected])
            for step, expected in ((1, 4.625), (2, 4.625), (3, 8.0)):
                copy_every(tf.constant(step))
                np.testing.assert_array_equal(everywhere(strategy, target), [expected])
            move_half = make(lambda: move_weights(target, source, tf.constant(0.5)))
            for variable in target.variables:
                variable.assign(tf.fill(variable.shape, 4.0))
            move_half()
            np.testing.assert_array_equal(everywhere(strategy, source), [6.0])
            copy()
            np.testing.assert_array_equal(everywhere(strategy, target), [6.0])
            for variable in source.variables:
                variable.assign(tf.fill(variable.shape, 8.0))


def check_all():
    for strategy in (
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        tf.distribute.OneDeviceStrategy("/cpu:0"),
        tf.distribute.get_strategy(),
    ):
        check_target_updates(strategy)
