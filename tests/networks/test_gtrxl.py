"""GTrXL: against loops over numbers that follow the papers, and what it attends to."""

import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.gtrxl import GTrXLCore, GTrXLState

T, B, F, SIZE, HEADS, MEMORY = 7, 4, 3, 6, 2, 3
rng = np.random.default_rng(0)


@pytest.fixture
def float64():
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx(before)


def made(layers=2, memory=MEMORY):
    """A core of random weights; at first, biases are zeros."""
    core = GTrXLCore(SIZE, layers, HEADS, memory, mlp_size=5)
    core.build(F)
    for variable in core.trainable_variables:
        variable.assign(rng.normal(size=variable.shape, scale=0.5))
    return core


def random_state(layers=2, memory=MEMORY):
    return GTrXLState(
        tf.constant(rng.normal(size=(B, layers, memory, SIZE))), tf.constant(rng.integers(memory + 1, size=B), tf.int32)
    )


def random_sequence(steps=T, resets=0.3):
    return tf.constant(rng.normal(size=(steps, B, F))), tf.constant(rng.random((steps, B)) < resets)


# A loop over numbers, one environment and one timestep after the other.


def normalized(x, norm):
    gamma, beta = (variable.numpy() for variable in norm.trainable_variables)
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * gamma + beta


def gated(gate, x, y):
    """Parisotto et al. 2019, section 3.2, "Gated-Recurrent-Unit-type gating"."""
    of_y, of_x, of_r = (layer.kernel.numpy() for layer in (gate._of_output, gate._of_input, gate._of_reset))
    (w_r, w_z, w_g), (u_r, u_z) = np.split(of_y, 3, axis=1), np.split(of_x, 2, axis=1)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    r = sigmoid(y @ w_r + x @ u_r)
    z = sigmoid(y @ w_z + x @ u_z - gate._bias.numpy())
    return (1 - z) * x + z * np.tanh(y @ w_g + (r * x) @ of_r)


def layer_output(layer, x, before):
    """Output for the input x after the inputs `before`, the newest last."""
    seen = [normalized(earlier, layer._norms[0]) for earlier in [*before, x]]
    head = SIZE // HEADS
    w_q, w_kv, w_r = (part.kernel.numpy() for part in (layer._query, layer._key_value, layer._relative))
    w_k, w_v = np.split(w_kv, 2, axis=1)
    attended = []
    for h in range(HEADS):
        own = slice(h * head, (h + 1) * head)
        q, logits = (seen[-1] @ w_q)[own], []
        for index, earlier in enumerate(seen):
            ago = len(seen) - 1 - index
            angles = ago / 10_000 ** (np.arange(0, SIZE, 2) / SIZE)
            relative = (np.concatenate([np.sin(angles), np.cos(angles)]) @ w_r)[own]
            u, v = layer._content_bias.numpy()[h, 0], layer._position_bias.numpy()[h, 0]
            logits.append(((q + u) @ (earlier @ w_k)[own] + (q + v) @ relative) / math.sqrt(head))
        weights = np.exp(logits - np.max(logits))
        values = [(earlier @ w_v)[own] for earlier in seen]
        attended.append((weights / weights.sum()) @ np.array(values))
    y = np.maximum(np.concatenate(attended) @ layer._attended.kernel.numpy(), 0)
    hidden = gated(layer._gates[0], x, y)
    y = normalized(hidden, layer._norms[1])
    for dense in layer._mlp:
        y = np.maximum(y @ dense.kernel.numpy() + dense.bias.numpy(), 0)
    return gated(layer._gates[1], hidden, y)


def expected_outputs(core, features, first, state):
    outputs = np.zeros((len(features), B, SIZE))
    for env in range(B):
        length = int(state.length[env])
        before = [list(memory[len(memory) - length :]) for memory in state.memory[env].numpy()]
        for t in range(len(features)):
            if first[t, env]:
                before = [[] for _ in before]
            x = features[t, env].numpy() @ core._embedding.kernel.numpy() + core._embedding.bias.numpy()
            for layer, inputs in zip(core._layers, before, strict=True):
                output = layer_output(layer, x, inputs[-MEMORY:])
                inputs.append(x)
                x = output
            outputs[t, env] = x
    return outputs


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("float64")
def test_outputs_are_those_of_the_papers():
    core, state = made(), random_state()
    features, first = random_sequence()
    outputs, _ = core.unroll(features, state, first)
    np.testing.assert_allclose(outputs, expected_outputs(core, features, first, state), atol=1e-9)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("parts", [(3, 4), pytest.param((1,) * T, marks=pytest.mark.slow)])
def test_a_sequence_may_be_cut_anywhere(parts):
    """Also within and at the start of an episode, with parts that are shorter and longer than the memory."""
    core, state = made(), random_state()
    features, first = random_sequence()
    whole, last = tf.function(core.unroll, autograph=False)(features, state, first)
    outputs, begin = [], 0
    for steps in parts:
        part = slice(begin, begin + steps)
        if steps == 1:
            output, state = core.step(features[begin], state, first[begin])
            output = output[tf.newaxis]
        else:
            output, state = core.unroll(features[part], state, first[part])
        outputs.append(output)
        begin += steps
    np.testing.assert_allclose(tf.concat(outputs, axis=0), whole, atol=1e-9)
    np.testing.assert_array_equal(state.length, last.length)
    for env, length in enumerate(last.length.numpy()):
        found, expected = (memory[env, :, MEMORY - length :] for memory in (state.memory, last.memory))
        np.testing.assert_allclose(found, expected, atol=1e-9)
    # Another continuation is the same, whatever is in the memory of earlier episodes.
    features, first = random_sequence(2, resets=0.0)
    np.testing.assert_allclose(core.unroll(features, state, first)[0], core.unroll(features, last, first)[0], atol=1e-9)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("float64")
def test_a_timestep_depends_on_its_episode_and_on_the_memory_only():
    core, steps = made(layers=1), 6
    features, _ = random_sequence(steps)
    first = np.zeros((steps, B), bool)
    first[4, 0] = True
    state = random_state(layers=1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([features, state.memory])
        outputs, _ = core.unroll(features, state, tf.constant(first))
        last = [tf.reduce_sum(outputs[-1, env]) for env in range(B)]
    of_features = [tape.gradient(one, features).numpy()[:, env] for env, one in enumerate(last)]
    reached = [np.flatnonzero(np.abs(one).max(axis=-1)).tolist() for one in of_features]
    assert reached == [[4, 5], *[list(range(steps - 1 - MEMORY, steps))] * (B - 1)]
    assert tape.gradient(outputs, state.memory) is None


@pytest.mark.slow("daily")
def test_at_first_it_passes_its_input_on():
    """The gates' bias keeps the initial outputs close to the embedding (section 3.2)."""
    core = GTrXLCore(32, layers=3, heads=4, memory=4)
    core.build(5)
    features = tf.random.stateless_normal((1, 8, 5), (0, 1))
    outputs, _ = core.unroll(features, core.initial_state(8), tf.ones((1, 8), tf.bool))
    embedded = core._embedding(features)
    assert np.corrcoef(outputs.numpy().ravel(), embedded.numpy().ravel())[0, 1] > 0.8


@pytest.mark.slow
def test_the_batch_may_be_unknown_when_it_is_traced():
    core = GTrXLCore(4, 1, 2, 3)
    core.build(F)
    spec = GTrXLState(tf.TensorSpec((None, 1, 3, 4)), tf.TensorSpec((None,), tf.int32))
    signature = (tf.TensorSpec((5, None, F)), spec, tf.TensorSpec((5, None), tf.bool))
    unroll = tf.function(core.unroll, input_signature=signature, autograph=False)
    features, state = tf.random.stateless_normal((5, 2, F), (0, 1)), core.initial_state(2)
    first = tf.zeros((5, 2), tf.bool)
    np.testing.assert_allclose(unroll(features, state, first)[0], core.unroll(features, state, first)[0], atol=1e-5)
