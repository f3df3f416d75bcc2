"""A network computes the same after the statistics of its observations have moved."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from slow_cases import slow_but

from callboard.launch.processes.devices import make_strategy
from callboard.networks.factory import policy_value_network, q_network
from callboard.networks.input_layers import keep_outputs
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PopArtSettings
from callboard.specs import EnvironmentSpec

_DISCRETE = specs.DiscreteArray(3)
_BOX = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
_VECTOR = specs.Array((4,), np.float32)
_NEST = {"place": _VECTOR, "room": specs.DiscreteArray(3), "speed": specs.Array((2, 1), np.float32)}
_IMAGE = {"camera": specs.BoundedArray((8, 8, 1), np.uint8, 0, 255), "place": _VECTOR}
_TASKS = {"place": _VECTOR, "task": specs.DiscreteArray(2)}
_MASKED = {"action_mask": specs.BoundedArray((3,), np.int8, 0, 1), "observation": _VECTOR}


def _network(observation, action=_DISCRETE, **options):
    return policy_value_network(EnvironmentSpec(observation, action), normalize_observations=True, **options)


NETWORKS = {
    "layers of the head": lambda: _network(_VECTOR, hidden_sizes=(), head_sizes=(8, 8)),
    "layers of the torso": lambda: _network(_NEST, hidden_sizes=(6,)),
    "linear": lambda: _network(_VECTOR, _BOX, hidden_sizes=()),
    "separate": lambda: _network(_NEST, _BOX, hidden_sizes=(8, 8), shared=False, layer_norm=True),
    "an asymmetric critic": lambda: _network(
        {**_NEST, "state": specs.Array((3,), np.float32)}, shared=False, critic_state="state"
    ),
    "a mask": lambda: _network(_MASKED, hidden_sizes=(), head_sizes=(8,)),
    "a memory": lambda: _network(_VECTOR, core="lstm", hidden_sizes=(8,), lstm_size=4),
    "parts": lambda: _network(_VECTOR, (_DISCRETE, _BOX), hidden_sizes=(), head_sizes=(4,)),
    "memories": lambda: _network(_VECTOR, _BOX, core="lstm", hidden_sizes=(), lstm_size=4, shared=False),
    "a GRU": lambda: _network(_VECTOR, core="gru", hidden_sizes=(), lstm_size=4, previous_inputs=True),
    "attention": lambda: _network(_VECTOR, core="gtrxl", hidden_sizes=(), lstm_size=4),
    "a vector beside an image": lambda: _network(_IMAGE, hidden_sizes=(), head_sizes=(8,), image_features=5),
    "layers beside an image": lambda: _network(_IMAGE, hidden_sizes=(6,), image_features=5),
    "torsos of parts": lambda: _network(
        {"camera": _IMAGE["camera"], **_NEST}, hidden_sizes=(), torsos={"camera": "impala", "speed": "mlp"}
    ),
    "bfloat16": lambda: _network(_NEST, hidden_sizes=(8,), precision="bfloat16"),
    "heads by task": lambda: _network(_TASKS, hidden_sizes=(), heads_by="task"),
    "parts that see each other": lambda: _network(
        _VECTOR, (_DISCRETE, _DISCRETE), hidden_sizes=(), head_sizes=(4,), autoregressive=True
    ),
    "PopArt": lambda: _network(_TASKS, hidden_sizes=(), popart=PopArtSettings(enabled=True, task="task")),
    "a distribution": lambda: q_network(
        EnvironmentSpec(_VECTOR, _DISCRETE), hidden_sizes=(), atoms=3, normalize_observations=True
    ),
    "values of choices": lambda: q_network(
        EnvironmentSpec(_VECTOR, (_DISCRETE, _DISCRETE)), hidden_sizes=(), normalize_observations=True
    ),
    "values": lambda: q_network(
        EnvironmentSpec(_NEST, _DISCRETE), hidden_sizes=(), stream_size=8, normalize_observations=True
    ),
}


def _observations(spec, rng, count, scale=1.0, mean=0.0):
    def leaf(one):
        if isinstance(one, specs.DiscreteArray):
            return rng.integers(one.num_values, size=count).astype(one.dtype)
        if one.dtype == np.uint8:
            return rng.integers(256, size=(count, *one.shape)).astype(np.uint8)
        if one.dtype == np.int8:
            return np.ones((count, *one.shape), np.int8)
        return (mean + scale * rng.normal(size=(count, *one.shape))).astype(np.float32)

    return tf.nest.map_structure(leaf, spec)


def _outputs(network, observation):
    count = len(tf.nest.flatten(observation)[0])
    previous = (tf.zeros(count, tf.int32), tf.zeros(count)) if network.previous_inputs else ()
    inputs = Inputs(observation, *previous)
    outputs, state = network.step(inputs, network.initial_state(count), tf.ones(count, tf.bool))
    if hasattr(outputs, "features"):
        # The parts see the observation itself here.
        outputs = (network.head.part(0, outputs.features, []).logits, outputs.value)
    return outputs, [leaf for leaf in tf.nest.flatten(state) if leaf.dtype.is_floating]


def _moved(name, strategy):
    """Checks a network before and after the statistics move."""
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        network = NETWORKS[name]()
    rng = np.random.default_rng(0)
    update = tf.function(lambda batch: strategy.run(network.normalizer.update, (batch, 1)), autograph=False)
    update(_observations(network.spec.observation, rng, 500, 0.1))
    seen = _observations(network.spec.observation, rng, 50, 0.2)
    for variable in network.trainable_variables:
        # Output layers begin so small that nothing would show.
        scale = 1 / np.sqrt(max(4, np.prod(variable.shape[:-1])))
        variable.assign(rng.normal(size=variable.shape, scale=scale).astype(np.float32))
    expected, weights = _outputs(network, seen), [variable.numpy() for variable in network.variables]
    batch = _observations(network.spec.observation, rng, 500, 0.2, 0.1)
    update(batch)
    tolerance = 0.1 if name == "bfloat16" else 1e-5
    with pytest.raises(AssertionError):
        _assert_close(_outputs(network, seen), expected, 2 * tolerance)
    for variable, value in zip(network.variables, weights, strict=True):
        variable.assign(value)
    keep_outputs(network, network.trainable_variables)
    tf.function(lambda batch: strategy.run(network.normalizer.update, (batch, 1)), autograph=False)(batch)
    _assert_close(_outputs(network, seen), expected, tolerance)
    for variable in network.variables:
        copies = strategy.experimental_local_results(variable)
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0])


FAST = ("heads by task", "layers of the head", "memories", "a vector beside an image", "separate", "values")


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(NETWORKS, *FAST))
def test_outputs_stay_while_the_statistics_move(name):
    _moved(name, tf.distribute.get_strategy())


def moved_on_two(names):
    strategy = make_strategy(["CPU:0", "CPU:1"])
    for name in names:
        _moved(name, strategy)


@pytest.mark.slow("daily")
def test_outputs_stay_on_two_devices(on_two_devices):
    on_two_devices(__file__, "moved_on_two", ["layers of the head"])


def test_nothing_follows_where_the_first_layers_are_not_known():
    network = _network(_VECTOR, torso=lambda spec: tf.keras.Sequential([tf.keras.layers.Dense(4)]))
    keep_outputs(network, network.trainable_variables)
    assert network.normalizer.follow is None


def test_a_feature_that_was_constant_is_left_alone():
    network = NETWORKS["layers of the head"]()
    normalizer = network.normalizer
    normalizer.update(np.zeros((100, 4), np.float32), leading=1)
    weights = [variable.numpy() for variable in network.trainable_variables]
    keep_outputs(network, network.trainable_variables)
    normalizer.update(np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32), leading=1)
    for variable, expected in zip(network.trainable_variables, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), expected)


def _assert_close(given, expected, tolerance):
    for one, other in zip(tf.nest.flatten(given), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
