"""Residual networks against the papers' tables and against loops in NumPy, and batch normalization in policies."""

import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from slow_cases import slow_but

from callboard.agents.impala import Impala, ImpalaPolicy
from callboard.data import Timestep
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.run import run
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import load_weights
from callboard.networks.factory import make_torso, policy_value_network
from callboard.networks.network import Inputs
from callboard.networks.torsos.residual import BatchNormalization, ImpalaResNet, ResNet, resnet_classifier
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

IMAGE = specs.BoundedArray((8, 8, 3), np.uint8, 0, 255)
SPEC = EnvironmentSpec(IMAGE, specs.DiscreteArray(4))


def images(number, seed=0, size=8):
    return np.random.default_rng(seed).integers(0, 256, (number, size, size, 3)).astype(np.uint8)


# The paper's tables.


@pytest.mark.slow
@pytest.mark.parametrize(
    "depth, millions",
    [
        (8, None),
        (20, 0.27),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((32, 0.46), (44, 0.66), (56, 0.85))),
    ],
)
def test_layers_and_parameters_are_those_of_table_6(depth, millions):
    network = ResNet(depth)
    assert network(images(1)).shape == (1, 64)
    # The last layer is a classifier's of ten classes.
    shapes = [variable.shape for variable in network.trainable_variables] + [tf.TensorShape((64, 10))]
    assert millions in (None, round((sum(np.prod(shape) for shape in shapes) + 10) / 1e6, 2))
    kernels = [shape for shape in shapes if shape.rank > 1]
    assert len(kernels) == depth
    # 2n layers to each of 16, 32 and 64 channels, besides the first (the table of section 4.2).
    n = (depth - 2) // 6
    outputs = [shape[-1] for shape in kernels]
    assert outputs == [16] * (1 + 2 * n) + [32] * 2 * n + [64] * 2 * n + [10]


def test_a_depth_that_is_not_there():
    with pytest.raises(CallboardError, match="unknown depth 18 of a ResNet; choose from 8, 20, 32, 44, 56"):
        ResNet(18)


def test_kernels_begin_as_by_he():
    """A standard deviation of sqrt(2 / n), where n inputs meet in a unit (He et al. 2015, equation (10))."""
    network = ResNet(8)
    network(images(1))
    kernels = [variable for variable in network.trainable_variables if np.prod(variable.shape) > 4000]
    assert len(kernels) == 4
    for kernel in kernels:
        inputs = np.prod(kernel.shape[:-1])
        np.testing.assert_allclose(np.std(kernel), np.sqrt(2 / inputs), rtol=0.05)


@pytest.mark.slow("daily")
def test_l2_is_half_the_decay_times_the_squares_of_kernels_alone():
    model = resnet_classifier((8, 8, 3), 10, 8, l2=0.02)
    for variable in model.trainable_variables:
        variable.assign_add(tf.ones_like(variable))
    squares = sum(np.sum(np.square(variable)) for variable in model.trainable_variables if variable.shape.rank > 1)
    np.testing.assert_allclose(sum(model.losses), 0.01 * squares, rtol=1e-5)


# The computation.


def convolve(hidden, kernel, stride):
    """A 3 x 3 convolution with zero padding, pixel by pixel, in float64."""
    batch, height, width, _ = hidden.shape
    out_height, out_width = -(-height // stride), -(-width // stride)
    # TensorFlow's SAME: with stride 2 and an even length, there is padding only at the end.
    before = [1 if stride == 1 or length % 2 else 0 for length in (height, width)]
    padded = np.zeros((batch, height + 3, width + 3, hidden.shape[3]))
    padded[:, before[0] : before[0] + height, before[1] : before[1] + width] = hidden
    result = np.zeros((batch, out_height, out_width, kernel.shape[3]))
    for y in range(out_height):
        for x in range(out_width):
            window = padded[:, y * stride : y * stride + 3, x * stride : x * stride + 3]
            result[:, y, x] = np.tensordot(window, kernel, 3)
    return result


class Reference:
    """A ResNet in NumPy; `averages` are mean and variance of each normalization, after a batch has been seen."""

    def __init__(self, weights, training):
        self.training = training
        # A kernel, scale and shift to each convolution, in order; then the moving averages.
        self.layers = list(zip(*[iter(weights)] * 5, strict=True))
        self.averages = []

    def layer(self, hidden, stride):
        kernel, scale, shift, mean, variance = self.layers.pop(0)
        hidden = convolve(hidden, kernel, stride)
        if self.training:
            batch_mean, batch_variance = hidden.mean((0, 1, 2)), hidden.var((0, 1, 2))
            self.averages.append((0.9 * mean + 0.1 * batch_mean, 0.9 * variance + 0.1 * batch_variance))
            mean, variance = batch_mean, batch_variance
        return scale * (hidden - mean) / np.sqrt(variance + 1e-5) + shift

    def __call__(self, image, n, channels=(16, 32, 64)):
        hidden = np.maximum(self.layer(image / 255.0, 1), 0)
        for section, size in enumerate(channels):
            for block in range(n):
                stride = 2 if section > 0 and block == 0 else 1
                residual = self.layer(np.maximum(self.layer(hidden, stride), 0), 1)
                shortcut = np.zeros_like(residual)
                missing = size - hidden.shape[3]
                shortcut[..., missing // 2 : missing // 2 + hidden.shape[3]] = hidden[:, ::stride, ::stride]
                hidden = np.maximum(residual + shortcut, 0)
        return hidden.mean((1, 2))


def weights_by_layer(network):
    """Kernel, scale, shift, moving mean and moving variance of each convolution, float64."""
    trained = [variable.numpy().astype(np.float64) for variable in network.trainable_variables]
    averages = [variable.numpy().astype(np.float64) for variable in network.non_trainable_variables]
    count = len(trained) // 3
    return [leaf for i in range(count) for leaf in (*trained[3 * i : 3 * i + 3], averages[2 * i], averages[2 * i + 1])]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("depth, size", slow_but([(8, 8), (8, 7), (20, 4)], (8, 7)))
@pytest.mark.parametrize("training", [True, False])
def test_against_loops(depth, size, training):
    network, image = ResNet(depth), images(3, size=size)
    network(image)
    rng = np.random.default_rng(1)
    for variable in network.variables:
        if variable.shape.rank == 1:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    reference = Reference(weights_by_layer(network), training)
    expected = reference(image, (depth - 2) // 6)
    before = [variable.numpy() for variable in network.non_trainable_variables]
    np.testing.assert_allclose(network(image, training=training), expected, rtol=1e-3, atol=1e-4)
    after = [variable.numpy() for variable in network.non_trainable_variables]
    wanted = [leaf for pair in reference.averages for leaf in pair] if training else before
    for found, average in zip(after, wanted, strict=True):
        np.testing.assert_allclose(found, average, rtol=1e-3, atol=1e-4)


# The network of IMPALA.


def test_the_size_of_impalas_network_is_that_of_the_paper():
    """Weights counted by hand from the paper's figure, for 64x64x3 images."""
    impala = ImpalaResNet()
    assert impala(np.zeros((1, 64, 64, 3), np.uint8)).shape == (1, 256)

    def convolution(inputs, outputs):
        return 9 * inputs * outputs + outputs

    sections = sum(convolution(a, b) + 4 * convolution(b, b) for a, b in ((3, 16), (16, 32), (32, 32)))
    assert impala.count_params() == sections + 8 * 8 * 32 * 256 + 256
    # Fifteen convolutions, as the paper counts.
    assert sum(len(variable.shape) == 4 for variable in impala.trainable_variables) == 15


@pytest.mark.slow("daily")
def test_width_and_residual_blocks():
    wide = ImpalaResNet(width=2)
    wide(np.zeros((1, 64, 64, 3), np.uint8))
    assert wide.trainable_variables[0].shape == (3, 3, 3, 32)

    # With blocks that add zero, the output is that without blocks.
    image = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype(np.uint8)
    with_blocks, without = ImpalaResNet(blocks=1), ImpalaResNet(blocks=0)
    _ = with_blocks(image), without(image)
    weights = with_blocks.get_weights()
    # A kernel and a bias for the section's convolution and for each of the block's two; at the end the dense layer.
    in_block = [index < len(weights) - 2 and index % 6 >= 2 for index in range(len(weights))]
    without.set_weights([weight for weight, inner in zip(weights, in_block, strict=True) if not inner])
    assert np.abs(with_blocks(image) - without(image)).max() > 1e-3
    with_blocks.set_weights([weight * (not inner) for weight, inner in zip(weights, in_block, strict=True)])
    np.testing.assert_allclose(with_blocks(image), without(image), atol=1e-6)


# Batch normalization in a policy.


def network_that_has_learned():
    """A network whose moving averages have been updated."""
    network = policy_value_network(SPEC, "resnet8")
    network.unroll(Inputs(images(6).reshape((3, 2, 8, 8, 3))), (), np.zeros((3, 2), bool), training=True)
    # The policy head begins almost flat.
    for variable in network.trainable_variables[-4:]:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    return network


def values_of(variables):
    return [variable.numpy() for variable in variables]


@pytest.mark.slow("daily")
def test_acting_neither_moves_the_averages_nor_looks_at_the_rest_of_the_batch():
    network = network_that_has_learned()
    before = values_of(network.variables)
    first = np.zeros(5, bool)
    together, _ = network.step(Inputs(images(5, seed=7)), (), first)
    alone, _ = network.step(Inputs(images(5, seed=7)[:1]), (), first[:1])
    np.testing.assert_allclose(together.logits[:1], alone.logits, rtol=1e-4, atol=1e-5)
    for old, new in zip(before, values_of(network.variables), strict=True):
        np.testing.assert_array_equal(old, new)
    learning, _ = network.step(Inputs(images(5, seed=7)), (), first, training=True)
    assert np.abs(learning.logits - together.logits).max() > 0.01
    moved = [np.abs(old - new).max() for old, new in zip(before, values_of(network.variables), strict=True)]
    # Means and variances of seven normalizations, and nothing else.
    assert np.count_nonzero(moved) == 14


@pytest.mark.slow("daily")
def test_the_averages_travel_with_the_weights():
    learner, actor = network_that_has_learned(), policy_value_network(SPEC, "resnet8")
    source, target = (ImpalaPolicy(network, "evaluate").variables for network in (learner, actor))
    for variable, value in zip(target, values_of(source), strict=True):
        variable.assign(value)
    inputs, first = Inputs(images(4, seed=3)), np.zeros(4, bool)
    np.testing.assert_array_equal(actor.step(inputs, (), first)[0].logits, learner.step(inputs, (), first)[0].logits)
    timestep = Timestep(images(4, seed=3), np.zeros(4, np.float32), np.ones(4, np.float32), first, first)
    action, _, _ = ImpalaPolicy(actor, "evaluate")(timestep, (), np.arange(4), np.zeros(2, np.int32))
    np.testing.assert_array_equal(action, np.argmax(learner.step(inputs, (), first)[0].logits, axis=-1))


@pytest.mark.slow("daily")
def test_l2_of_the_torso_is_a_loss_of_the_network():
    network = policy_value_network(SPEC, lambda spec: make_torso(spec, "resnet8"))
    kernels = [variable for variable in network.trainable_variables if variable.shape.rank == 4]
    np.testing.assert_allclose(
        network.regularization_loss(), 0.5e-4 * sum(np.sum(np.square(kernel)) for kernel in kernels), rtol=1e-5
    )
    assert policy_value_network(SPEC, "impala").regularization_loss() == 0


@pytest.mark.slow("daily")
@pytest.mark.parametrize("torso, kernel", [("impala-x4", (3, 3, 3, 64)), ("resnet20-x3", (3, 3, 3, 48))])
def test_width_by_name(torso, kernel):
    assert policy_value_network(SPEC, torso).trainable_variables[0].shape == kernel


@pytest.mark.parametrize("torso", ["impala-x0", "nature-x2", "impala-x", "resnet18"])
def test_names_that_are_not_there(torso):
    with pytest.raises(CallboardError, match=f"unknown torso '{torso}'"):
        policy_value_network(SPEC, torso)


def test_tensorflow_optimizes_the_impala_network_without_an_error(capfd):
    """`remapper failed` is harmless, but looks like an error in the output of a run."""
    network = ImpalaResNet((4,), features=8)
    network(images(1))

    @tf.function(autograph=False)
    def gradients(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(network(batch))
        return tape.gradient(loss, network.trainable_variables)

    gradients(tf.constant(images(2)))
    assert "failed" not in capfd.readouterr().err


def test_an_average_is_one_variable_for_all_replicas():
    layer = BatchNormalization()
    layer.build((None, 4, 4, 2))
    assert {variable.aggregation for variable in layer.non_trainable_variables} == {
        tf.VariableAggregation.ONLY_FIRST_REPLICA
    }


@pytest.mark.parametrize("replicas", [1, 2])
def test_batches_are_normalized_over_all_replicas(monkeypatch, replicas):
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: types.SimpleNamespace(num_replicas_in_sync=replicas))
    assert BatchNormalization().synchronized == (replicas > 1)


@pytest.mark.slow
def test_an_update_does_not_depend_on_the_number_of_replicas(on_two_devices):
    on_two_devices(pathlib.Path(__file__).with_name("batch_normalization_replicas.py"), "check_all")


@pytest.mark.slow
def test_a_policy_is_trained_and_its_averages_reach_the_checkpoint(tmp_path):
    agent = from_values(Impala, {"network.torso": "resnet8", "unroll_length": 8, "batch_size": 8})
    sizes = {"actors": 1, "envs_per_actor": 8, "max_steps": 1500, "evaluate_every": 1000}
    evaluations = {"evaluation_episodes": 4, "evaluation_envs": 4}
    experiment = Experiment(agent, "MinAtar/Breakout-v1", run_dir=tmp_path / "run", **sizes, **evaluations)
    assert run(experiment, "inline").exit_code == 0
    policy = agent.make_policy(agent.make_networks(check_experiment(experiment).whole), "evaluate")
    averages = [variable for variable in policy.variables if "/moving_" in variable.name]
    before = values_of(averages)
    for path in (RunDirectory(tmp_path / "run").best_policy, *(tmp_path / "run" / "checkpoints").glob("*/policy.npz")):
        load_weights(path, policy.variables)
        assert len(averages) == 14
        for old, new in zip(before, values_of(averages), strict=True):
            assert np.isfinite(new).all() and np.abs(new - old).max() > 1e-3
