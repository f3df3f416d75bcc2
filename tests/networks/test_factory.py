"""The network for an environment, and messages about wrong names."""

import sys

import composed_actions
import numpy as np
import pytest
import tensorflow as tf
import tree
from composed_actions import ACTIONS
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.action_policy import action_policy
from callboard.networks.factory import policy_value_network
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.networks.heads.composed_heads import AutoregressiveValue, ComposedValue
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PopArtSettings
from callboard.networks.torsos.torso_factory import make_torso
from callboard.specs import EnvironmentSpec, zeros

VECTOR = specs.BoundedArray((4,), np.float32, -1, 1)
IMAGE = specs.BoundedArray((40, 40, 3), np.uint8, 0, 255)
OBSERVATIONS = {
    "vector": VECTOR,
    "float64 vector": specs.Array((4,), np.float64),
    "choice": specs.DiscreteArray(16),
    "image": IMAGE,
    "small binary image": specs.Array((10, 10, 4), np.bool_),
    "vectors": {"position": VECTOR, "velocity": specs.Array((2, 2), np.float32), "mode": specs.DiscreteArray(3)},
    "images and vectors": {"eye": IMAGE, "body": VECTOR, "inner": {"map": specs.Array((12, 12, 1), np.float32)}},
}
FAST = (("none", "choice"), ("none", "small binary image"), ("none", "vectors"), ("lstm", "images and vectors"))


def spec_of(observation):
    return EnvironmentSpec(observation, specs.DiscreteArray(6))


def random_observation(spec, leading, seed=0):
    rng = np.random.default_rng(seed)
    return tree.map_structure(lambda leaf: rng.integers(0, 2, (*leading, *leaf.shape)).astype(leaf.dtype), spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    "core, name",
    [
        pytest.param(core, name, marks=() if (core, name) in FAST else pytest.mark.slow)
        for core in ("none", "lstm")
        for name in OBSERVATIONS
    ],
)
def test_every_kind_of_observation(name, core):
    spec = spec_of(OBSERVATIONS[name])
    network = policy_value_network(spec, core=core, lstm_size=8)
    variables = len(network.trainable_variables)
    observation = random_observation(spec.observation, (3, 2))
    unroll = tf.function(network.unroll)
    outputs, _ = unroll(Inputs(observation), network.initial_state(2), np.zeros((3, 2), bool))
    assert outputs.logits.shape == (3, 2, 6) and outputs.value.shape == (3, 2)
    assert outputs.logits.dtype == tf.float32
    assert len(network.trainable_variables) == variables
    # The output depends on every part of the observation.
    for index in range(len(tree.flatten(observation))):
        leaves = tree.flatten(observation)
        leaves[index] = tree.flatten(random_observation(spec.observation, (3, 2), seed=1))[index]
        others, _ = unroll(
            Inputs(tree.unflatten_as(observation, leaves)), network.initial_state(2), np.zeros((3, 2), bool)
        )
        assert np.abs(outputs.value - others.value).max() > 1e-7


@pytest.mark.slow("daily")
@pytest.mark.parametrize("torso", ["mlp", "nature", "impala"])
def test_float64(torso):
    tf.keras.backend.set_floatx("float64")
    try:
        network = policy_value_network(spec_of(IMAGE), torso)
    finally:
        tf.keras.backend.set_floatx("float32")
    outputs, _ = network.step(Inputs(zeros(IMAGE, 2)), (), np.zeros(2, bool))
    assert outputs.value.dtype == tf.float64
    assert {variable.dtype for variable in network.trainable_variables} == {tf.float64}


def make_small_torso(spec):
    return tf.keras.Sequential([tf.keras.layers.Dense(5, input_shape=spec.observation.shape)])


def make_nothing(spec):
    return None


def test_a_torso_of_the_user_gets_a_spec_without_the_mask():
    received = []

    def make(spec):
        received.append(spec.observation)
        return make_small_torso(spec)

    mask = specs.BoundedArray((3,), np.int8, 0, 1)
    observation = {"observation": VECTOR, "action_mask": mask}
    network = make_torso(EnvironmentSpec(observation, specs.DiscreteArray(3)), make)
    assert received == [VECTOR]
    given = {"observation": tf.zeros((2, *VECTOR.shape)), "action_mask": tf.ones((2, 3), tf.int8)}
    assert network(given).shape == (2, 5)


def test_torsos_of_the_user(monkeypatch):
    monkeypatch.setitem(sys.modules, "torso_of_the_user", sys.modules[__name__])
    spec = spec_of(VECTOR)
    for torso in (make_small_torso, make_small_torso(spec), "torso_of_the_user:make_small_torso"):
        network = policy_value_network(spec, torso, core="lstm", lstm_size=3)
        outputs, _ = network.unroll(
            Inputs(np.ones((2, 3, 4), np.float32)), network.initial_state(3), np.zeros((2, 3), bool)
        )
        assert outputs.value.shape == (2, 3)
        assert (4, 5) in [tuple(variable.shape) for variable in network.trainable_variables]


def test_a_functional_model_on_a_nest():
    inputs = {"eye": tf.keras.Input((40, 40, 3)), "body": tf.keras.Input((4,))}
    features = tf.keras.layers.Concatenate()([tf.keras.layers.Flatten()(inputs["eye"]), inputs["body"]])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(5)(features))
    spec = spec_of({"eye": IMAGE, "body": VECTOR})
    outputs, _ = policy_value_network(spec, model).step(Inputs(zeros(spec.observation, 2)), (), np.zeros(2, bool))
    assert outputs.value.shape == (2,)


@pytest.mark.parametrize(
    ("torso", "message"),
    [
        (
            "natur",
            "unknown torso 'natur'; did you mean 'nature'",
        ),
        (
            "x",
            "unknown torso 'x'; choose from auto, mlp, conv, nature, .*resnet56, or write package.module:factory",
        ),
        ("impala", "'impala' is for images.*'mlp'"),
        ("no_such_package:torso", "No module named 'no_such_package'"),
        ("torso_of_the_user:make_smal_torso", "did you mean 'make_small_torso'"),
        ("torso_of_the_user:make_nothing", "must return a Keras layer or model, not NoneType"),
        (":x", "cannot be imported"),
    ],
)
def test_wrong_torsos(monkeypatch, torso, message):
    monkeypatch.setitem(sys.modules, "torso_of_the_user", sys.modules[__name__])
    with pytest.raises(CallboardError, match=message) as error:
        policy_value_network(spec_of(VECTOR), torso)
    assert "\n" not in str(error.value)


def test_wrong_core_and_wrong_action():
    with pytest.raises(CallboardError, match="unknown core 'lstn'; did you mean 'lstm'"):
        policy_value_network(spec_of(VECTOR), core="lstn")
    with pytest.raises(CallboardError, match=r"floats with bounds, not int32\(4,\)"):
        policy_value_network(EnvironmentSpec(VECTOR, specs.BoundedArray((4,), np.int32, 0, 3)))


@pytest.mark.slow("daily")
def test_checkpoints(tmp_path):
    """Networks on nests are saved and restored like any `tf.Module`."""
    spec = spec_of(OBSERVATIONS["images and vectors"])
    saved, restored = (policy_value_network(spec, core="lstm", lstm_size=4, previous_inputs=True) for _ in range(2))
    path = tf.train.Checkpoint(network=saved).write(str(tmp_path / "network"))
    tf.train.Checkpoint(network=restored).read(path).assert_consumed()
    for one, other in zip(saved.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def small_network(action, **changed):
    sizes = {"hidden_sizes": (4,), "lstm_size": 4, "head_sizes": (4,)}
    return policy_value_network(composed_actions.spec_of(action), initial_log_std=-0.5, **{**sizes, **changed})


@pytest.mark.slow
@pytest.mark.parametrize(
    "action, changed, outputs",
    [
        (specs.DiscreteArray(3), {"autoregressive": True}, PolicyValue),
        (composed_actions.BOX, {}, GaussianValue),
        (ACTIONS["nest"], {}, ComposedValue),
        (ACTIONS["multi-discrete"], {"shared": False, "core": "lstm"}, ComposedValue),
        (ACTIONS["nest"], {"autoregressive": True}, AutoregressiveValue),
        (ACTIONS["nest"], {"autoregressive": True, "shared": False, "core": "gru"}, AutoregressiveValue),
        (ACTIONS["nest"], {"autoregressive": True, "popart": PopArtSettings(enabled=True)}, AutoregressiveValue),
    ],
)
def test_the_outputs_are_those_for_the_kind_of_action(action, changed, outputs):
    network = small_network(action, **changed)
    observation, first = tf.random.stateless_normal((5, 2, 3), seed=(1, 2)), tf.zeros((5, 2), tf.bool)
    before = len(network.variables)
    unrolled, _ = network.unroll(Inputs(observation), network.initial_state(2), first, training=True)
    assert isinstance(unrolled, outputs) and unrolled.value.shape == (5, 2)
    policy = action_policy(network.spec, network)
    chosen = policy.mode(unrolled, observation)
    log_prob, entropy = policy.evaluate(unrolled, observation, chosen)
    assert log_prob.shape == entropy.shape == (5, 2) and np.isfinite(log_prob).all()
    # Everything was built by the constructor.
    assert len(network.variables) == before
    if hasattr(unrolled, "log_std"):
        np.testing.assert_array_equal(unrolled.log_std, np.full_like(unrolled.log_std, -0.5))


def test_a_head_of_the_user_outputs_what_the_default_one_does():
    network = small_network(ACTIONS["multi-discrete"], head=f"{__name__}:ConstantHead", head_options={"logit": 2.0})
    outputs, _ = network.step(Inputs(tf.zeros((2, 3))), (), tf.ones(2, tf.bool))
    np.testing.assert_array_equal(outputs.logits, np.full((2, 9), 2.0))


class ConstantHead(tf.Module):
    def __init__(self, spec, logit):
        super().__init__()
        self._logit = logit

    def __call__(self, features):
        return ComposedValue(tf.fill((2, 9), self._logit), (), (), tf.zeros(2))
