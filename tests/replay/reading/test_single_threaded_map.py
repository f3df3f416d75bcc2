import gc

import numpy as np
import pytest
import tensorflow as tf
from reading import read_batches

from callboard.data import Sample
from callboard.replay.reading.queue_dataset import single_threaded_map


def test_gives_what_map_gives_also_nests_and_what_came_from_outside():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=-1)
    table.insert([2], tf.constant([20], tf.int64))

    def function(element):
        return Sample({"b": element["x"][1:], "a": table.lookup(element["n"])}, (), (element["n"], {}))

    dataset = tf.data.Dataset.range(4).map(lambda n: {"n": n, "x": tf.fill((3,), tf.cast(n, tf.float32))})
    mapped = single_threaded_map(dataset, function)
    assert mapped.element_spec == dataset.map(function).element_spec
    # Of what was just made; to collect what other tests have left takes up to a minute.
    gc.collect(0)
    samples = list(mapped.map(lambda sample: sample))
    assert [int(sample.record["a"]) for sample in samples] == [-1, -1, 20, -1]
    np.testing.assert_array_equal(samples[3].record["b"], [3, 3])
    assert [int(sample.info[0]) for sample in samples] == [0, 1, 2, 3]


def test_runs_on_one_thread_and_so_takes_no_control_flow():
    with pytest.raises(tf.errors.FailedPreconditionError, match="Single-threaded executor"):
        next(iter(single_threaded_map(tf.data.Dataset.range(3), lambda n: tf.cond(n > 1, lambda: n, lambda: 2 * n))))


def test_batches_of_unknown_size_may_follow():
    mapped = single_threaded_map(
        tf.data.Dataset.range(6).batch(3), lambda numbers: tf.gather(numbers, tf.where(numbers != 4)[:, 0])
    )
    assert [batch.tolist() for batch in read_batches(mapped.rebatch(2), 3)] == [[0, 1], [2, 3], [5]]


def test_an_error_of_the_function_is_raised():
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(
            iter(
                single_threaded_map(
                    tf.data.Dataset.range(3), lambda n: tf.debugging.check_numerics(1 / tf.cast(n, tf.float32), "no")
                )
            )
        )
