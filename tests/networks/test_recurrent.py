"""Cores: one without memory, and the LSTM against that of Keras."""

import numpy as np
import tensorflow as tf

from callboard.networks.recurrent import FeedForwardCore, GRUCore, LSTMCore, LSTMState

T, B = 7, 5
GRU_WEIGHTS = ("kernel", "recurrent_kernel", "bias")


def made(size=6, features=8):
    core = LSTMCore(size)
    core.build(features)
    return core


def random_sequence(features=8, size=6, seed=0):
    """Features, resets in a fifth of the timesteps, and a state."""
    rng = np.random.default_rng(seed)
    state = LSTMState(*tf.constant(rng.uniform(-1, 1, (2, B, size)), tf.float32))
    return tf.constant(rng.normal(size=(T, B, features)), tf.float32), tf.constant(rng.random((T, B)) < 0.2), state


def test_lstm_is_that_of_keras():
    """Keras's own layer gives the same numbers with the same weights."""
    core = LSTMCore(6)
    core.build(8)
    weights = {variable.name.split("/")[-1]: variable for variable in core.trainable_variables}
    reference = tf.keras.layers.LSTM(6, return_sequences=True, time_major=True)
    reference.build((T, B, 8))
    reference.set_weights([weights[f"{name}:0"].numpy() for name in ("kernel", "recurrent_kernel", "bias")])
    features = tf.random.stateless_normal((T, B, 8), (0, 1))
    hidden, _ = core.unroll(features, core.initial_state(B), tf.zeros((T, B), tf.bool))
    np.testing.assert_allclose(hidden, reference(features), atol=1e-5)


def test_an_unroll_equals_steps_over_resets():
    core = made()
    features, first, state = random_sequence()
    outputs, last = core.unroll(features, state, first)
    in_graph, _ = tf.function(core.unroll, autograph=False)(features, state, first)
    for t in range(T):
        output, state = core.step(features[t], state, first[t])
        np.testing.assert_allclose(outputs[t], output, atol=1e-6)
        np.testing.assert_allclose(in_graph[t], output, atol=1e-6)
        np.testing.assert_array_equal(output, state.hidden)
    np.testing.assert_allclose(last, state, atol=1e-6)


def test_both_parts_of_the_state_are_zero_where_an_episode_begins():
    core, (features, _, state) = made(), random_sequence()
    first = tf.constant([True, False, True, False, False])
    output, after = core.step(features[0], state, first)
    fresh, fresh_after = core.step(features[0], core.initial_state(B), tf.zeros(B, tf.bool))
    for found, expected in ((output, fresh), (after.hidden, fresh_after.hidden), (after.cell, fresh_after.cell)):
        same = np.abs(found - expected).max(axis=-1) == 0
        np.testing.assert_array_equal(same, first)


def test_the_specs_of_a_state_are_known_before_the_variables():
    core = LSTMCore(6)
    assert core.state_spec == LSTMState(tf.TensorSpec((6,)), tf.TensorSpec((6,)))
    state = core.initial_state(3)
    assert state.hidden.shape == state.cell.shape == (3, 6) and not np.any(state)
    assert core.trainable_variables == ()
    core.build(8)
    shapes = sorted(tuple(variable.shape) for variable in core.trainable_variables)
    assert shapes == [(6, 24), (8, 24), (24,)]


def test_a_state_has_the_dtype_of_the_layers():
    tf.keras.backend.set_floatx("float64")
    try:
        core = made()
    finally:
        tf.keras.backend.set_floatx("float32")
    assert core.initial_state(2).cell.dtype == core.state_spec.hidden.dtype == tf.float64
    output, _ = core.step(tf.zeros((2, 8), tf.float64), core.initial_state(2), tf.zeros(2, tf.bool))
    assert output.dtype == tf.float64


def test_without_memory_features_pass_through():
    core = FeedForwardCore()
    core.build(8)
    features, first, _ = random_sequence()
    assert core.state_spec == core.initial_state(B) == () and not core.trainable_variables
    step, unroll = features[0], features
    assert core.step(step, (), first[0])[0] is step and core.unroll(unroll, (), first)[0] is unroll
    assert core.step(step, (), first[0])[1] == core.unroll(unroll, (), first)[1] == ()


def test_gru_is_that_of_keras():
    core = GRUCore(6)
    core.build(8)
    weights = {variable.name.split("/")[-1]: variable for variable in core.trainable_variables}
    values = [np.random.default_rng(0).normal(size=weights[f"{name}:0"].shape) for name in GRU_WEIGHTS]
    for name, value in zip(GRU_WEIGHTS, values, strict=True):
        weights[f"{name}:0"].assign(value)
    reference = tf.keras.layers.GRU(6, return_sequences=True, time_major=True, reset_after=True)
    reference.build((T, B, 8))
    reference.set_weights(values)
    features = tf.random.stateless_normal((T, B, 8), (0, 1))
    outputs, last = core.unroll(features, core.initial_state(B), tf.zeros((T, B), tf.bool))
    np.testing.assert_allclose(outputs, reference(features), atol=1e-5)
    np.testing.assert_array_equal(last, outputs[-1])


def test_a_gru_s_unroll_equals_steps_over_resets():
    core = GRUCore(6)
    core.build(8)
    features, first, (state, _) = random_sequence()
    outputs, last = core.unroll(features, state, first)
    in_graph, _ = tf.function(core.unroll, autograph=False)(features, state, first)
    for t in range(T):
        fresh, _ = core.step(features[t], core.initial_state(B), tf.zeros(B, tf.bool))
        output, state = core.step(features[t], state, first[t])
        np.testing.assert_allclose(outputs[t], output, atol=1e-6)
        np.testing.assert_allclose(in_graph[t], output, atol=1e-6)
        np.testing.assert_array_equal(np.abs(output - fresh).max(axis=-1) == 0, first[t])
    np.testing.assert_allclose(last, state, atol=1e-6)
    assert core.state_spec == tf.TensorSpec((6,), tf.float32)
