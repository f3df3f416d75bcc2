"""Torsos in bfloat16: what is computed in which precision, and how much the results differ."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from tensorflow.python.framework import kernels

from callboard.networks import precision
from callboard.networks.factory import make_torso, policy_value_network
from callboard.networks.network import Inputs
from callboard.networks.network_settings import Activation, PolicyValueNetworkSettings
from callboard.networks.precision import MixedPrecisionTorso, with_precision
from callboard.specs import EnvironmentSpec

IMAGE = EnvironmentSpec(specs.BoundedArray((36, 36, 2), np.uint8, 0, 255), specs.DiscreteArray(3))
VECTOR = EnvironmentSpec(specs.Array((5,), np.float32), specs.DiscreteArray(3))


@pytest.fixture
def in_bfloat16(monkeypatch):
    """Torsos compute in bfloat16 also where oneDNN is on and has no kernels for compiled layers."""
    monkeypatch.setattr(precision, "_compiles_bfloat16", lambda: True)


def observations(spec):
    rng = np.random.default_rng(0)
    if spec is IMAGE:
        return tf.constant(rng.integers(0, 256, (4, 36, 36, 2)), tf.uint8)
    return tf.constant(rng.normal(size=(4, 5)), tf.float32)


@pytest.mark.slow
@pytest.mark.usefixtures("in_bfloat16")
@pytest.mark.parametrize(
    "torso, spec",
    [
        ("nature", IMAGE),
        pytest.param("mlp", VECTOR, marks=pytest.mark.slow),
        pytest.param("resnet8", IMAGE, marks=pytest.mark.slow),
    ],
)
def test_results_are_close_to_those_of_float32(torso, spec):
    def run(precision):
        tf.keras.utils.set_random_seed(1)
        network = policy_value_network(spec, torso, core="lstm", lstm_size=8, precision=precision)
        with tf.GradientTape() as tape:
            state, first = network.initial_state(4), tf.zeros((4,), tf.bool)
            outputs, _ = network.step(Inputs(observations(spec)), state, first, training=True)
            loss = tf.reduce_sum(tf.square(outputs.value - 1.0)) + tf.reduce_sum(outputs.logits[:, 0])
        gradients = tape.gradient(loss, network.trainable_variables)
        return outputs, network.trainable_variables, gradients

    exact, variables, exact_gradients = run("float32")
    outputs, same_variables, gradients = run("bfloat16")
    for variable, other in zip(variables, same_variables, strict=True):
        assert other.dtype == tf.float32
        np.testing.assert_array_equal(variable, other)
    assert (outputs.value.dtype, outputs.logits.dtype) == (tf.float32, tf.float32)
    assert not np.array_equal(exact.value, outputs.value)
    np.testing.assert_allclose(outputs.value, exact.value, atol=0.05)
    # Those of an MLP differ by rounding only; batch normalization of a batch of four adds noise.
    flat, other = (np.concatenate([np.ravel(part) for part in parts]) for parts in (exact_gradients, gradients))
    assert np.isfinite(other).all() and np.dot(flat, other) > 0.95 * np.linalg.norm(flat) * np.linalg.norm(other)


@pytest.mark.usefixtures("in_bfloat16")
def test_layers_compute_in_bfloat16_with_weights_in_float32():
    torso = make_torso(IMAGE, "nature", precision="bfloat16")
    assert isinstance(torso, MixedPrecisionTorso)
    assert torso(observations(IMAGE)).dtype == tf.float32
    layers = [part for part in torso.submodules if isinstance(part, tf.keras.layers.Layer)]
    assert {layer.compute_dtype for layer in layers} == {"bfloat16"}
    assert {variable.dtype for variable in torso.variables} == {tf.float32}


@pytest.mark.slow
def test_compiled_layers_run_with_onednn():
    # On CPUs without AVX-512 there are no kernels in bfloat16 for what it fuses.
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
    command = [sys.executable, pathlib.Path(__file__).with_name("compiled_bfloat16.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_where_compiled_layers_do_not_run_in_bfloat16_they_are_float32(monkeypatch):
    monkeypatch.setattr(precision, "_compiles_bfloat16", lambda: False)
    assert not isinstance(make_torso(IMAGE, "nature", precision="bfloat16"), MixedPrecisionTorso)


def test_without_a_gpu_bfloat16_on_gpu_is_float32():
    assert not isinstance(make_torso(IMAGE, "nature", precision="bfloat16_on_gpu"), MixedPrecisionTorso)


def test_a_torso_without_layers_passes_vectors_on_unchanged():
    torso = make_torso(VECTOR, "mlp", (), precision="bfloat16")
    np.testing.assert_array_equal(torso(observations(VECTOR)), observations(VECTOR))
    assert with_precision(torso, "bfloat16") is torso


def test_a_torso_of_the_users_own_has_its_own_precision():
    settings = PolicyValueNetworkSettings(hidden_sizes=(), activation="relu", lstm_size=8, head_sizes=())
    wrong = dataclasses.replace(settings, torso="my:torso", precision="bfloat16")
    assert wrong.problem.startswith("precision is for torsos by name")


@pytest.mark.parametrize("activation", get_args(Activation))
def test_activations_are_those_of_tensorflow(activation):
    """In bfloat16, computed there for ReLU and in float32 for the others."""
    x = tf.cast(tf.constant([-np.inf, -7.5, -1.0, -0.0, 0.0, 1e-3, 0.3, 2.0, np.inf]), tf.bfloat16)
    original = tf.keras.activations.get(activation)
    wide = x if activation == "relu" else tf.cast(x, tf.float32)

    def of(function, argument):
        with tf.GradientTape() as tape:
            tape.watch(argument)
            y = function(argument)
        return [tf.cast(one, tf.bfloat16) for one in (y, tape.gradient(y, argument))]

    for found, expected in zip(of(precision._on_gpu(original), x), of(original, wide), strict=True):
        assert found.dtype == tf.bfloat16
        np.testing.assert_array_equal(tf.cast(found, tf.float32), tf.cast(expected, tf.float32))


TORSOS = [("nature", IMAGE), ("impala", IMAGE), ("resnet8", IMAGE), ("mlp", VECTOR)]
FEW = [("nature", IMAGE, "relu")]


@pytest.mark.usefixtures("in_bfloat16")
@pytest.mark.parametrize(
    "torso, spec, activation",
    [*FEW, *(pytest.param(*torso, name, marks=pytest.mark.slow) for torso in TORSOS for name in get_args(Activation))],
)
def test_every_operation_in_bfloat16_has_a_kernel_for_gpus(torso, spec, activation):
    """As TensorFlow lists its kernels, also where there is no GPU."""
    made = make_torso(spec, torso, activation=activation, image_activation=activation, precision="bfloat16")
    made(observations(spec))

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(made(observations(spec), training=True) ** 2)
        return tape.gradient(loss, made.trainable_variables)

    graph = gradient.get_concrete_function().graph
    used = {
        operation.type
        for operation in graph.get_operations()
        if tf.bfloat16 in [value.dtype for value in (*operation.inputs, *operation.outputs)]
    }
    assert "Cast" in used and used & {"MatMul", "Conv2D"}
    assert {name for name in used if not has_kernel(name)} == set()


def has_kernel(operation):
    """Whether TensorFlow has a kernel for GPUs that takes or gives bfloat16."""
    found = [one for one in kernels.get_registered_kernels_for_op(operation).kernel if one.device_type in _DEVICES]
    kinds = [set(limit.allowed_values.list.type) for one in found for limit in one.constraint if limit.name in _TYPES]
    untyped = any(not [limit for limit in one.constraint if limit.name in _TYPES] for one in found)
    return untyped or any(tf.bfloat16.as_datatype_enum in kind for kind in kinds)


_DEVICES = ("GPU", "DEFAULT")
_TYPES = ("T", "SrcT", "DstT", "dtype", "Tparams")
