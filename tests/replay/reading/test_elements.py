"""The elements of a dataset, and the end of a wait for one that does not come."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tree

from callboard.replay import BatchReader, Elements, rebuilt_if_changed


def test_the_elements_of_a_dataset_come_one_by_one_until_its_end_and_again():
    rows = np.arange(6).reshape(3, 2)
    dataset = tf.data.Dataset.from_tensor_slices({"b": rows, "a": (rows + 10.0, ())})
    batches = Elements(dataset)
    assert len(list(batches)) == 3
    found = [tree.map_structure(np.asarray, element) for element in batches]
    assert [list(element) for element in found] == [["a", "b"]] * 3
    np.testing.assert_array_equal([element["b"] for element in found], rows)
    np.testing.assert_array_equal([element["a"][0] for element in found], rows + 10.0)


def devices_of_elements():
    """Where the tensors of the elements are, with their dtypes and values."""
    dataset = tf.data.Dataset.from_tensor_slices({"image": tf.constant([[7], [255]], tf.uint8), "last": [True, False]})
    elements = list(Elements(dataset, "CPU:1"))
    leaves = [element[name] for element in elements for name in ("image", "last")]
    return [[leaf.device[-5:], leaf.dtype.name, leaf.numpy().tolist()] for leaf in leaves]


@pytest.mark.slow
def test_elements_are_copied_to_a_device_as_they_are(on_two_devices):
    first, second = ["CPU:1", "uint8", [7]], ["CPU:1", "uint8", [255]]
    wanted = [first, ["CPU:1", "bool", True], second, ["CPU:1", "bool", False]]
    assert on_two_devices(__file__, "devices_of_elements") == wanted


def test_an_error_of_a_dataset_is_no_end():
    def refuse_one(number):
        with tf.control_dependencies([tf.debugging.assert_none_equal(number, tf.constant(1, tf.int64))]):
            return tf.identity(number)

    found = iter(Elements(tf.data.Dataset.range(3).map(refuse_one)))
    assert next(found).numpy() == 0
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(found)


def test_a_reader_that_is_built_anew_leaves_no_thread_behind():
    """Where the old one waits for what never comes."""
    queue = tf.queue.FIFOQueue(1, [tf.int64])
    made = []

    def make():
        made.append(threading.current_thread())
        return Elements(tf.data.Dataset.range(10).map(lambda number: queue.dequeue()))

    reader = BatchReader(make, stopped=lambda: False)
    for _ in range(3):
        assert reader.poll(0.5) is None
        reader.rebuild()
    reader.close()
    for thread in made:
        thread.join(10.0)
    assert len(made) >= 3 and not any(thread.is_alive() for thread in made)


def test_a_dataset_is_made_again_only_for_another_address():
    addresses, made = ["a", "a", "b", "b", "a"], []

    def make():
        made.append(len(made))
        return made[-1]

    get = rebuilt_if_changed(make, key=addresses.pop)
    assert [get() for _ in range(5)] == [0, 1, 1, 2, 2]
