"""Trains a residual network (callboard/networks/torsos/residual.py) to classify images, on one or more devices.

    python examples/train_resnet.py --data images.npz --out runs/resnet
    python examples/train_resnet.py --data photographs --size 64 --depth 56 --devices 2 --out runs/resnet
    python examples/train_resnet.py --data cifar10 --out runs/resnet
    python examples/train_resnet.py --data cifar10 --out runs/resnet --evaluate-only --epoch 3

`--data` is any dataset of tensorflow_datasets with images and labels, an `.npz` file with x_train, y_train, x_test and
y_test, or a folder with `train/CLASS/*.png` and `test/CLASS/*.png`.  For several hosts, use `--strategy multi-worker`
and set TF_CONFIG on each.  The output directory contains `checkpoints/`, from which the same command resumes after an
interruption, `epochs/` with the weights after every epoch, `tensorboard/`, and `model/`, a SavedModel that takes uint8
images; `tf.keras.models.load_model` makes it a Keras model again, with logits as outputs, under any strategy or none.
"""

import argparse
import logging
import math
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# Must be set before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from callboard.errors import CallboardError, suggestion  # noqa: E402
from callboard.messages.install_commands import install_command  # noqa: E402
from callboard.networks.torsos.residual import RESNET_DEPTHS, resnet_classifier  # noqa: E402

PADDING = 4
SIZE = 32
"""Height and width of images that have several sizes, in pixels."""
EPOCHS = "epochs"
INSTALL = ("tensorflow-datasets", "tensorflow-metadata<1.17")
"""Newer versions of tensorflow-metadata need a newer protobuf than TensorFlow 2.12."""
LEARNING_RATES = {"sgd": 0.1, "adam": 1e-3}
"""Optimizers, with the learning rates that they begin with."""
PICTURES = ("png", "svg", "pdf")
TEST_BATCH = 250
SHUFFLED = 50_000
"""Size of the shuffle buffer, in images."""
MEASURED = 5_000
"""Maximum number of images from which mean and variance are computed."""


class Data(NamedTuple):
    """Images, uint8 `[size, size, channels]`, with their classes, int64."""

    train: tf.data.Dataset
    test: tf.data.Dataset
    classes: int


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    for library in ("tensorflow", "absl"):
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        train(options)
    except CallboardError as error:
        print(f"train_resnet: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a dataset of tensorflow_datasets, a folder, or an .npz file")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory; all workers must see it")
    parser.add_argument("--data-dir", help="where tensorflow_datasets keeps its files; its own default if left out")
    parser.add_argument("--train-split", default="train", help="of tensorflow_datasets, such as 'train[:80%%]'")
    parser.add_argument("--test-split", help="of tensorflow_datasets; test or validation if left out")
    parser.add_argument("--size", type=int, help="height and width to resize to; 32 for images of several sizes")
    parser.add_argument("--depth", type=int, default=20, choices=RESNET_DEPTHS)
    parser.add_argument("--width", type=int, default=1, help="multiplies the channels")
    parser.add_argument("--l2", type=float, default=1e-4, help="weight decay")
    parser.add_argument("--strategy", choices=("mirrored", "multi-worker"), default="mirrored")
    parser.add_argument("--devices", type=int, default=1, help="GPUs, or cores where there are none, of each worker")
    parser.add_argument("--global-batch", type=int, default=128, help="images in a step, over all replicas")
    parser.add_argument("--epochs", type=int, default=164)
    parser.add_argument("--optimizer", choices=tuple(LEARNING_RATES), default="sgd", help="sgd has a momentum of 0.9")
    parser.add_argument(
        "--learning-rate", type=float, help="0.1 for sgd, 0.001 for adam; divided by 10 after 1/2 and 3/4 of all steps"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate-only", action="store_true", help="only measure the accuracy of an epoch's weights")
    parser.add_argument("--epoch", type=int, help="the epoch to evaluate; the newest if left out")
    parser.add_argument("--update-freq", default="epoch", help="TensorBoard: epoch, batch, or a number of steps")
    parser.add_argument("--histogram-freq", type=int, default=0, help="TensorBoard: epochs between histograms; 0: none")
    parser.add_argument("--write-images", action="store_true", help="TensorBoard: show weights as images too")
    parser.add_argument("--plot", type=pathlib.Path, help="picture of the model, such as model.png; needs matplotlib")
    return parser.parse_args(arguments)


def train(options: argparse.Namespace) -> None:
    for name in ("size", "width", "epochs", "epoch"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise CallboardError(f"--{name} must be at least 1, not {getattr(options, name)}")
    if options.epoch is not None and not options.evaluate_only:
        raise CallboardError("--epoch is for --evaluate-only: leave it out")
    board = tensorboard_settings(options)
    if options.plot is not None:
        check_plot(options.plot)
    strategy = make_strategy(options.strategy, options.devices)
    replicas = strategy.num_replicas_in_sync
    if options.global_batch < 1 or options.global_batch % replicas:
        near = replicas * max(1, round(options.global_batch / replicas))
        raise CallboardError(f"{replicas} replicas cannot share --global-batch {options.global_batch}: try {near}")
    weights = weights_of(options.out, options.epoch) if options.evaluate_only else None
    data = load(options.data, options.size, options.data_dir, options.train_split, options.test_split)
    images = data.train.cardinality().numpy()
    if weights is not None:
        mean, variance = moments(data.train.shard(math.ceil(images / MEASURED), 0))
        if options.plot is not None:
            plot(data, options)
        evaluate(make_model(data, mean, variance, options), weights, data)
        return
    if images < options.global_batch:
        raise CallboardError(f"there are {images} images to train on: --global-batch must not be more")

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        # Shard before shuffling, so that no image is in two shards.
        share = data.train.shard(context.num_input_pipelines, context.input_pipeline_id)
        share = share.shuffle(min(images, SHUFFLED), options.seed).repeat()
        seeds = tf.data.Dataset.random(options.seed + context.input_pipeline_id).batch(2)
        share = tf.data.Dataset.zip((share, seeds)).map(augment, tf.data.AUTOTUNE)
        return share.batch(context.get_per_replica_batch_size(options.global_batch)).prefetch(tf.data.AUTOTUNE)

    steps = images // options.global_batch
    tf.keras.utils.set_random_seed(options.seed)
    mean, variance = moments(data.train.shard(math.ceil(images / MEASURED), 0))
    with strategy.scope():
        model = make_model(data, mean, variance, options)
        model.compile(
            make_optimizer(options, options.epochs * steps),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    own = own_directory(strategy, options.out)
    if options.plot is not None and own == options.out:
        plot(data, options)
    model.fit(
        strategy.distribute_datasets_from_function(batches),
        epochs=options.epochs,
        steps_per_epoch=steps,
        verbose=2,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(str(options.out / "checkpoints"), delete_checkpoint=False),
            tf.keras.callbacks.ModelCheckpoint(str(own / EPOCHS / "{epoch:04d}"), save_weights_only=True),
            tf.keras.callbacks.TensorBoard(str(own / "tensorboard"), profile_batch=0, **board),
        ],
    )
    # The same network without a strategy, so that the saved model can be loaded under any strategy, or none.
    alone = make_model(data, mean, variance, options)
    alone.set_weights(model.get_weights())
    export(alone, own / "model")
    serve = tf.saved_model.load(str(own / "model")).signatures["serving_default"]
    print(f"test accuracy {accuracy(serve, data.test):.4f}")


def make_optimizer(options: argparse.Namespace, steps: int) -> tf.keras.optimizers.Optimizer:
    first = LEARNING_RATES[options.optimizer] if options.learning_rate is None else options.learning_rate
    decay = tf.keras.optimizers.schedules.PiecewiseConstantDecay(
        [steps // 2, steps * 3 // 4], [first / factor for factor in (1, 10, 100)]
    )
    if options.optimizer == "adam":
        return tf.keras.optimizers.Adam(decay)
    return tf.keras.optimizers.SGD(decay, momentum=0.9)


def evaluate(model: tf.keras.Model, weights: pathlib.Path, data: Data) -> None:
    try:
        model.load_weights(str(weights)).assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:
        raise CallboardError(
            f"{weights} has the weights of another network: give --depth, --width and --size as in training"
        ) from error
    serve = tf.function(lambda images: {"probabilities": tf.nn.softmax(model(images, training=False))})
    print(f"epoch {int(weights.name)}: test accuracy {accuracy(serve, data.test):.4f}")


def weights_of(out: pathlib.Path, epoch: int | None) -> pathlib.Path:
    """Returns the prefix of the files with the weights after an epoch, the newest if it is None."""
    there = sorted(int(file.stem) for file in (out / EPOCHS).glob("*.index"))
    if not there or epoch not in (None, *there):
        known = f"there are {there[0]} to {there[-1]}" if there else "train first"
        raise CallboardError(f"{out} has no weights of {'an epoch' if epoch is None else f'epoch {epoch}'}: {known}")
    return out / EPOCHS / f"{there[-1] if epoch is None else epoch:04d}"


def tensorboard_settings(options: argparse.Namespace) -> dict[str, Any]:
    frequency = options.update_freq
    if frequency not in ("epoch", "batch"):
        if not (frequency.isdecimal() and int(frequency) > 0):
            raise CallboardError(f"--update-freq must be epoch, batch or a number of steps, not {frequency}")
        frequency = int(frequency)
    if options.histogram_freq < 0:
        raise CallboardError(f"--histogram-freq must be at least 0, not {options.histogram_freq}")
    # Keras writes the images together with the histograms.
    histograms = max(options.histogram_freq, int(options.write_images))
    return {"update_freq": frequency, "histogram_freq": histograms, "write_images": options.write_images}


def check_plot(path: pathlib.Path) -> None:
    if path.suffix[1:] not in PICTURES:
        raise CallboardError(f"--plot {path} must end in one of {', '.join(PICTURES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CallboardError(f"--plot needs matplotlib ({error}): {install_command('callboard[plot]')}") from error


def plot(data: Data, options: argparse.Namespace) -> None:
    """Draws the network, a chain, with its blocks, which are calls inside of one layer in the model that is trained.

    Each box shows the shape of its outputs and the number of its weights.
    """
    import matplotlib.pyplot as plt

    images = tf.keras.Input(data.train.element_spec[0].shape)
    body, top = resnet_classifier(images.shape[1:], data.classes, options.depth, options.width, options.l2).layers
    layers = tf.keras.Model(images, top(body.call(images))).layers
    figure, axes = plt.subplots(figsize=(6, 1 + 0.5 * len(layers)))
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "tab:blue"}
    for row, layer in enumerate(layers):
        kind = layer.name if layer.name.startswith("tf.") else type(layer).__name__.strip("_")
        # The last layer has been called in the other model, too.
        shape = " × ".join(map(str, layer.get_output_at(-1).shape[1:]))
        axes.text(0, -row, f"{kind}: {shape}, {layer.count_params():,} weights", ha="center", va="center", bbox=box)
        if row > 0:
            line = {"arrowstyle": "->", "shrinkA": 9, "shrinkB": 9}
            axes.annotate("", (0, -row), (0, 1 - row), arrowprops=line, zorder=1)
    axes.set(xlim=(-1, 1), ylim=(-len(layers), 1), title=f"resnet{options.depth}")
    axes.axis("off")
    options.plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.plot, bbox_inches="tight", dpi=110)
    plt.close(figure)


def make_strategy(name: str, devices: int) -> tf.distribute.Strategy:
    """Creates a strategy over the first `devices` GPUs of each worker, or over as many cores if there are no GPUs."""
    gpus = tf.config.list_physical_devices("GPU")
    kind, there = ("GPU", len(gpus)) if gpus else ("CPU", os.cpu_count() or 1)
    if not 1 <= devices <= there:
        raise CallboardError(f"--devices must lie between 1 and {there}, the {kind}s that there are, not be {devices}")
    if gpus:
        tf.config.set_visible_devices(gpus[:devices], "GPU")
    elif devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    if name == "mirrored":
        return tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(devices)])
    if "TF_CONFIG" not in os.environ:
        raise CallboardError("--strategy multi-worker needs the addresses of all workers: set TF_CONFIG")
    if kind == "CPU" and devices > 1:
        raise CallboardError("without GPUs, workers have one device each: leave out --devices and start more workers")
    return tf.distribute.MultiWorkerMirroredStrategy()


def own_directory(strategy: tf.distribute.Strategy, out: pathlib.Path) -> pathlib.Path:
    """Returns the directory of this worker's output: `out` for the first worker, a subdirectory for the others."""
    worker = strategy.cluster_resolver
    first = "chief" if worker and "chief" in worker.cluster_spec().jobs else "worker"
    if worker is None or (worker.task_type, worker.task_id) == (first, 0):
        return out
    return out / f"{worker.task_type}-{worker.task_id}"


def load(
    name: str,
    size: int | None,
    directory: str | None = None,
    train_split: str = "train",
    test_split: str | None = None,
) -> Data:
    path = pathlib.Path(name)
    if path.suffix == ".npz" and path.is_file():
        with np.load(path) as file:
            missing = {"x_train", "y_train", "x_test", "y_test"} - set(file)
            if missing:
                raise CallboardError(f"{path} must hold x_train, y_train, x_test and y_test; no {sorted(missing)[0]}")
            parts = [(file[f"x_{part}"], file[f"y_{part}"].ravel().astype(np.int64)) for part in ("train", "test")]
        for images, _ in parts:
            if images.dtype != np.uint8 or images.ndim != 4:
                raise CallboardError(f"{path} must hold images as uint8 [N, height, width, channels]")
        train, test = map(tf.data.Dataset.from_tensor_slices, parts)
        return Data(train, test, int(max(labels.max() for _, labels in parts)) + 1)
    if path.is_dir():
        return load_folder(path, size or SIZE)
    if path.suffix == ".npz":
        raise CallboardError(f"there is no {name}: give an .npz file, a folder or a dataset of tensorflow_datasets")
    return load_tensorflow_dataset(name, size, directory, train_split, test_split)


def load_tensorflow_dataset(
    name: str, size: int | None, directory: str | None, train_split: str, test_split: str | None
) -> Data:
    try:
        import tensorflow_datasets as tfds

        tfds.core  # noqa: B018  It is imported only now.
    except (ImportError, AttributeError) as error:
        raise CallboardError(f"{name} needs tensorflow_datasets ({error}): {install_command(*INSTALL)}") from error
    try:
        builder = tfds.builder(name, data_dir=directory)
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError) as error:
        known = tfds.list_builders(with_community_datasets=False)
        hint = suggestion(name, known, "give one of its datasets, a folder or an .npz file")
        raise CallboardError(f"tensorflow_datasets has no dataset {name}; {hint}") from error
    features = builder.info.features
    image, label = (features[key] if key in features else None for key in ("image", "label"))
    if not isinstance(image, tfds.features.Image) or not isinstance(label, tfds.features.ClassLabel):
        raise CallboardError(f"{name} is not a dataset of images with labels: it has {', '.join(features)}")
    try:
        builder.download_and_prepare()
        test_split = test_split or ("test" if "test" in builder.info.splits else "validation")
        train, test = (builder.as_dataset(split=split) for split in (train_split, test_split))
    except ValueError as error:
        raise CallboardError(f"{name} cannot be read: {' '.join(str(error).split())}") from error
    if None in image.shape:
        size = size or SIZE

    def example(row: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        shown = row["image"] if size is None else resized(row["image"], size)
        shape = image.shape[:2] if size is None else (size, size)
        return tf.ensure_shape(shown, (*shape, image.shape[-1])), row["label"]

    train, test = (part.map(example, tf.data.AUTOTUNE) for part in (train, test))
    return Data(train, test, label.num_classes)


def load_folder(path: pathlib.Path, size: int) -> Data:
    classes = sorted(folder.name for folder in path.glob("train/*") if folder.is_dir())
    parts = []
    for part in ("train", "test"):
        files = [(str(file), label) for label, name in enumerate(classes) for file in (path / part / name).glob("*.*")]
        if len({label for _, label in files}) < max(2, len(classes)):
            raise CallboardError(f"{path} must hold train/CLASS/*.png and test/CLASS/*.png with images of each class")
        # Shuffled, in the same order for all workers.
        files.sort()
        names, labels = zip(*(files[index] for index in np.random.default_rng(0).permutation(len(files))), strict=True)
        dataset = tf.data.Dataset.from_tensor_slices((list(names), np.array(labels, np.int64)))
        parts.append(dataset.map(lambda file, label: (read(file, size), label), tf.data.AUTOTUNE))
    return Data(parts[0], parts[1], len(classes))


def read(file: tf.Tensor, size: int) -> tf.Tensor:
    image = tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)
    return tf.ensure_shape(resized(image, size), (size, size, 3))


def resized(image: tf.Tensor, size: int) -> tf.Tensor:
    return tf.saturate_cast(tf.round(tf.image.resize(image, (size, size), antialias=True)), tf.uint8)


def augment(example: tuple[tf.Tensor, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Applies a random crop of the padded image and a random flip (He et al. 2016, section 4.2)."""
    image, label = example
    padded = tf.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    cropped = tf.image.stateless_random_crop(padded, image.shape, seed)
    return tf.image.stateless_random_flip_left_right(cropped, seed + 1), label


def moments(images: tf.data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the variance of each channel."""
    batches = [batch.astype(np.float64) for batch, _ in images.batch(TEST_BATCH).as_numpy_iterator()]
    pixels = np.concatenate(batches).reshape(-1, batches[0].shape[-1])
    return pixels.mean(axis=0), np.maximum(pixels.var(axis=0), 1.0)


def make_model(data: Data, mean: np.ndarray, variance: np.ndarray, options: argparse.Namespace) -> tf.keras.Model:
    shape = data.train.element_spec[0].shape
    classifier = resnet_classifier(shape, data.classes, options.depth, options.width, options.l2)
    normalization = tf.keras.layers.Normalization(mean=mean, variance=variance)
    return tf.keras.Sequential([tf.keras.Input(shape, dtype=tf.uint8), normalization, classifier])


def export(model: tf.keras.Model, path: pathlib.Path) -> None:
    """Writes a Keras model, whose signature takes `images`, uint8 `[N, ...]`, and returns `probabilities`."""
    images = tf.TensorSpec(model.input_shape, tf.uint8, "images")
    serve = tf.function(lambda images: {"probabilities": tf.nn.softmax(model(images, training=False))})
    model.save(str(path), save_format="tf", include_optimizer=False, signatures=serve.get_concrete_function(images))


def accuracy(serve: Callable[..., dict[str, tf.Tensor]], test: tf.data.Dataset) -> float:
    correct = [
        np.argmax(serve(images=images)["probabilities"], axis=-1) == labels for images, labels in test.batch(TEST_BATCH)
    ]
    return float(np.mean(np.concatenate(correct)))


if __name__ == "__main__":
    sys.exit(main())
