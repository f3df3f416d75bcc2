"""Prints a SavedModel's accuracy, loaded without a strategy and under one of two devices, also by Keras.

Runs without Callboard.

load_classifier.py MODEL DATA.npz
"""

import contextlib
import importlib.util
import sys

import numpy as np
import tensorflow as tf

BATCH = 100


def main():
    assert importlib.util.find_spec("callboard") is None, "Callboard can be imported here"
    path, data = sys.argv[1:]
    with np.load(data) as file:
        images, labels = file["x_test"], file["y_test"]
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)

    serve = tf.saved_model.load(path).signatures["serving_default"]
    batches = np.split(images, len(images) // BATCH)
    found = np.concatenate([np.argmax(serve(images=tf.constant(batch))["probabilities"], axis=-1) for batch in batches])
    print(np.mean(found == labels))

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        distributed = tf.saved_model.load(path)
    assert len(strategy.experimental_local_results(distributed.variables[0])) == 2
    serve = distributed.signatures["serving_default"]
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    correct = 0
    for batch, wanted in strategy.experimental_distribute_dataset(dataset):
        outputs = strategy.run(lambda batch: serve(images=batch)["probabilities"], args=(batch,))
        shares = zip(*map(strategy.experimental_local_results, (outputs, wanted)), strict=True)
        correct += sum(np.sum(np.argmax(output, axis=-1) == labels_of_share) for output, labels_of_share in shares)
    print(correct / len(labels))

    for scope in (contextlib.nullcontext, strategy.scope):
        with scope():
            model = tf.keras.models.load_model(path)
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("adam", loss, metrics=["accuracy"])
        print(round(model.evaluate(images, labels, BATCH, verbose=0)[1], 6))


if __name__ == "__main__":
    main()
