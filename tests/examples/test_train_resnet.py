"""The classifier of examples/train_resnet.py: what it reads, what it refuses, and how well it distinguishes images."""

import contextlib
import importlib.abc
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import imageio.v3 as imageio
import numpy as np
import pytest
import tensorflow as tf

from callboard.errors import CallboardError

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_resnet.py"
LOADING = pathlib.Path(__file__).with_name("load_classifier.py")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_resnet", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gratings(number, seed):
    """Images of ten classes: waves of ten lengths, of any direction, phase and color, under noise.

    Over the phases the mean of each class is the same gray, so that no sum of weighted pixels distinguishes them.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(number) % 10
    y, x = np.mgrid[:32, :32] / 32
    angle, phase = rng.uniform(0, 2 * np.pi, (2, number, 1, 1))
    cycles = (2 + 1.4 * labels)[:, np.newaxis, np.newaxis]
    waves = np.sin(2 * np.pi * cycles * (np.cos(angle) * x + np.sin(angle) * y) + phase)
    color = rng.uniform(0.3, 1, (number, 1, 1, 3))
    images = 128 + 80 * color * waves[..., np.newaxis] + rng.normal(0, 20, (number, 32, 32, 3))
    return np.clip(images, 0, 255).astype(np.uint8), labels


def save_gratings(path, train, test):
    (x_train, y_train), (x_test, y_test) = gratings(train, 1), gratings(test, 2)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def linear_accuracy(train, test, decay=1000.0):
    """Of ridge regression on the classes."""
    inputs, other_inputs = (
        np.concatenate([images.reshape(len(images), -1) / 255, np.ones((len(images), 1))], axis=1)
        for images, _ in (train, test)
    )
    weights = np.linalg.solve(inputs.T @ inputs + decay * np.eye(inputs.shape[1]), inputs.T @ np.eye(10)[train[1]])
    return np.mean(np.argmax(other_inputs @ weights, axis=1) == test[1])


def start(*arguments, config=None):
    """Starts the example as a program."""
    environment = {**os.environ, **({"TF_CONFIG": json.dumps(config)} if config else {})}
    # Set here by a library that TensorFlow imports, and not where the example is started from a shell.
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, timeout=1200):
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, output, errors


def run(*arguments):
    code, output, errors = finish(start(*arguments))
    assert code == 0, output + errors
    return output


# What it reads.


def test_a_folder_of_images(example, tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(("ash", "birch")):
            (tmp_path / part / name).mkdir(parents=True)
            for index in range(count):
                image = np.full((40, 24, 3), 100 * label + 10 * index, np.uint8)
                imageio.imwrite(tmp_path / part / name / f"{index}.png", image)
    data = example.load(str(tmp_path), 16)
    assert data.classes == 2
    for dataset, count in ((data.train, 3), (data.test, 2)):
        rows = [(int(label), image) for image, label in dataset.as_numpy_iterator()]
        assert all(image.shape == (16, 16, 3) and image.dtype == np.uint8 for _, image in rows)
        assert sorted((label, int(image.mean())) for label, image in rows) == [
            (label, 100 * label + 10 * index) for label in (0, 1) for index in range(count)
        ]


def test_augmented_images_are_parts_of_the_padded_one_and_its_mirror_image(example):
    image = np.random.default_rng(0).integers(1, 256, (6, 6, 3)).astype(np.uint8)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    windows = {
        window[:, ::step].tobytes(): (y, x, step)
        for y in range(9)
        for x in range(9)
        for window in (padded[y : y + 6, x : x + 6],)
        for step in (1, -1)
    }
    augmented = [example.augment((image, 7), tf.constant((seed, 0))) for seed in range(60)]
    found = {windows[result.numpy().tobytes()] for result, _ in augmented}
    assert len({y for y, _, _ in found}) > 5 and len({x for _, x, _ in found}) > 5
    assert {step for _, _, step in found} == {1, -1}
    assert all(label == 7 for _, label in augmented)


def test_normalized_images_have_mean_zero_and_variance_one(example):
    images, labels = gratings(50, 3)
    mean, variance = example.moments(tf.data.Dataset.from_tensor_slices((images, labels)))
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(variance, images.astype(np.float64).var((0, 1, 2)), rtol=1e-9)


# What it refuses.


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--data", "few.npz", "--devices", "4096"], "--devices must lie between 1 and "),
        (["--data", "few.npz", "--devices", "0"], "--devices must lie between 1 and "),
        (["--data", "few.npz", "--global-batch", "0"], "cannot share --global-batch 0: try 1"),
        (["--data", "few.npz", "--global-batch", "64"], "there are 20 images to train on"),
        (["--data", "few.npz", "--epochs", "0"], "--epochs must be at least 1, not 0"),
        (["--data", "few.npz", "--strategy", "multi-worker"], "set TF_CONFIG"),
        (["--data", "nothing.npz"], "there is no nothing.npz: give an .npz file, a folder or a dataset of tensorflow_"),
        (["--data", "few.npz", "--evaluate-only"], "out has no weights of an epoch: train first"),
        (["--data", "few.npz", "--epoch", "3"], "--epoch is for --evaluate-only: leave it out"),
        (
            ["--data", "few.npz", "--update-freq", "often"],
            "--update-freq must be epoch, batch or a number of",
        ),
        (["--data", "few.npz", "--histogram-freq", "-1"], "--histogram-freq must be at least 0, not -1"),
        (["--data", "few.npz", "--plot", "model.txt"], "--plot model.txt must end in one of png, svg, pdf"),
        (["--data", "half.npz"], "half.npz must hold x_train, y_train, x_test and y_test; no x_test"),
        (["--data", "floats.npz"], "floats.npz must hold images as uint8"),
        (["--data", "empty"], "empty must hold train/CLASS/*.png"),
    ],
)
def test_a_mistake_is_one_line(example, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    images, labels = gratings(20, 1)
    np.savez("few.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez("half.npz", x_train=images, y_train=labels)
    np.savez("floats.npz", x_train=images / 255, y_train=labels, x_test=images / 255, y_test=labels)
    (tmp_path / "empty").mkdir()
    assert example.main([*arguments, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("train_resnet: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


class Hider(importlib.abc.MetaPathFinder):
    """Makes tensorflow_datasets look as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow_datasets":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_tensorflow_datasets_there_is_a_hint(example, tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow_datasets", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Hider(), *sys.meta_path])
    assert example.main(["--data", "cifar10", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("train_resnet: cifar10 needs tensorflow_datasets (No module named 'tensorflow_datasets'): ")
    assert error.endswith("pip install 'tensorflow-datasets' 'tensorflow-metadata<1.17'\n")


def test_a_dataset_of_any_name_and_of_images_of_several_sizes(example, tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow_datasets is not installed")
    sizes = {"fixed": (12, 12, 1), "several": (None, None, 3)}

    class Waves(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in sizes]

        def _info(self):
            image = tfds.features.Image(shape=sizes[self.builder_config.name])
            features = {"image": image, "label": tfds.features.ClassLabel(num_classes=5), "id": np.int64}
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager):
            return {"train": self._generate_examples(6), "validation": self._generate_examples(3)}

        def _generate_examples(self, count):
            channels = sizes[self.builder_config.name][-1]
            for index in range(count):
                side = 12 if channels == 1 else 12 + index
                image = np.full((side, side, channels), index, np.uint8)
                yield index, {"image": image, "label": index % 5, "id": index}

    for name, size, shape in (("fixed", None, (12, 12, 1)), ("several", None, (32, 32, 3)), ("several", 8, (8, 8, 3))):
        data = example.load(f"waves/{name}", size, str(tmp_path), "train[:4]")
        assert data.classes == 5
        assert [int(label) for _, label in data.train] == [int(image[0, 0, 0]) % 5 for image, _ in data.train]
        assert data.train.element_spec[0].shape == shape and (len(data.train), len(data.test)) == (4, 3)
    with pytest.raises(CallboardError, match="^tensorflow_datasets has no dataset wave; did you mean 'waves'"):
        example.load("wave", None, str(tmp_path))


@pytest.mark.slow("daily")
def test_a_picture_of_the_network(example, tmp_path, monkeypatch):
    data = example.Data(tf.data.Dataset.from_tensors((np.zeros((8, 8, 3), np.uint8), 0)), None, 4)
    picture = tmp_path / "new" / "model.png"
    options = example.parse(["--data", "x", "--out", "y", "--depth", "8", "--plot", str(picture)])
    example.check_plot(options.plot)
    example.plot(data, options)
    pixels = imageio.imread(picture)
    # A box for each of 3 blocks, and for what is before and after them.
    assert pixels.shape[0] > 400 and pixels[..., :3].min() < 100
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CallboardError, match=r"--plot needs matplotlib \(.*\): .*pip install 'callboard\[plot\]'$"):
        example.check_plot(options.plot)


def test_tensorboard_settings(example):
    def settings(*arguments):
        return example.tensorboard_settings(example.parse(["--data", "x", "--out", "y", *arguments]))

    assert settings() == {"update_freq": "epoch", "histogram_freq": 0, "write_images": False}
    shown = settings("--update-freq", "20", "--write-images")
    assert shown == {"update_freq": 20, "histogram_freq": 1, "write_images": True}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.slow
def test_a_batch_that_two_replicas_cannot_divide(tmp_path):
    save_gratings(tmp_path / "few.npz", 40, 20)
    arguments = ("--data", tmp_path / "few.npz", "--out", tmp_path / "out", "--devices", 2, "--global-batch", 7)
    code, _, errors = finish(start(*arguments))
    assert code == 2
    assert errors == "train_resnet: 2 replicas cannot share --global-batch 7: try 8\n"


# How well it does.


@pytest.mark.slow
def test_resnet_20_learns_what_is_not_linear_and_is_loaded_with_the_same_accuracy(tmp_path):
    assert linear_accuracy(gratings(4000, 1), gratings(1000, 2)) < 0.6
    save_gratings(tmp_path / "data.npz", 4000, 1000)
    settings = ("--depth", 20, "--global-batch", 32, "--epochs", 2, "--learning-rate", 0.05)
    output = run("--data", tmp_path / "data.npz", "--out", tmp_path / "out", *settings)
    (said,) = re.findall(r"test accuracy (\S+)", output)
    assert float(said) > 0.95
    assert list((tmp_path / "out" / "tensorboard").rglob("events.out.*"))
    evaluated = run("--data", tmp_path / "data.npz", "--out", tmp_path / "out", "--evaluate-only")
    assert evaluated == f"epoch 2: test accuracy {said}\n"
    earlier = run("--data", tmp_path / "data.npz", "--out", tmp_path / "out", "--evaluate-only", "--epoch", 1)
    assert earlier.startswith("epoch 1: test accuracy ")
    loaded = subprocess.run(
        [sys.executable, "-S", str(LOADING), str(tmp_path / "out" / "model"), str(tmp_path / "data.npz")],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(np.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert loaded.returncode == 0, loaded.stderr
    alone, *others = map(float, loaded.stdout.split())
    assert others == [alone] * 3
    assert f"{alone:.4f}" == said


@pytest.mark.parametrize(
    "given, kind, first",
    [((), "SGD", 0.1), (("--optimizer", "adam"), "Adam", 1e-3), (("--learning-rate", "0.5"), "SGD", 0.5)],
)
def test_the_optimizer_is_an_option(example, given, kind, first):
    optimizer = example.make_optimizer(example.parse(["--data", "x", "--out", "y", *given]), 100)
    assert type(optimizer).__name__ == kind
    rates = [float(optimizer._learning_rate(step)) for step in (0, 60, 90)]
    assert rates == pytest.approx([first, first / 10, first / 100])


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_two_devices_and_continuing_from_a_checkpoint(tmp_path):
    save_gratings(tmp_path / "data.npz", 400, 100)
    arguments = ("--data", tmp_path / "data.npz", "--out", tmp_path / "out", "--depth", 8, "--global-batch", 20)
    first = run(*arguments, "--devices", 2, "--epochs", 1)
    assert "20/20" in first
    second = run(*arguments, "--devices", 2, "--epochs", 2)
    assert "Epoch 1/2" not in second and "Epoch 2/2" in second


@pytest.mark.slow
def test_two_workers_end_with_the_same_weights(tmp_path):
    save_gratings(tmp_path / "data.npz", 200, 100)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for server in sockets:
            server.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in sockets]
    arguments = ("--data", tmp_path / "data.npz", "--out", tmp_path / "out", "--depth", 8, "--global-batch", 20)
    workers = [
        start(
            *(*arguments, "--epochs", 2, "--strategy", "multi-worker"),
            config={"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}},
        )
        for index in range(2)
    ]
    try:
        for worker in workers:
            code, output, errors = finish(worker)
            assert code == 0, output + errors
    finally:
        for worker in workers:
            worker.kill()
    weights = [
        tf.keras.models.load_model(str(directory / "model")).get_weights()
        for directory in (tmp_path / "out", tmp_path / "out" / "worker-1")
    ]
    # Five to each of seven normalized convolutions, and the classifier's two.
    assert len(weights[0]) == len(weights[1]) == 7 * 5 + 2
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
