"""GTrXL: a gated transformer whose memory is the recurrent state (Parisotto et al. 2019, arXiv:1910.06764)."""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_GATE_BIAS = 2.0
"""Initial bias of gates (section 3.2): at first a layer passes its input on, nearly unchanged."""
_EPSILON = 1e-5


class GTrXLState(NamedTuple):
    """State of a GTrXL, leaves `[B, ...]`."""

    memory: Any
    """`[layers, memory, size]`, the inputs of each layer at the timesteps before, the newest last."""
    length: Any
    """int32, number of those timesteps that are in the same episode, and are attended to."""


class GTrXLCore(tf.Module):
    """A stack of gated transformer layers that attend to the `memory` timesteps before, and to none of other episodes.

    In an unroll every timestep attends to as many as in a step.  No gradients flow into the state that an unroll begins
    with.  As in section 3, normalization comes before attention and MLP ("identity map reordering"), and a GRU gates
    what both add.  Positions are relative (Dai et al. 2019, section 3.3).
    """

    def __init__(
        self,
        size: int,
        layers: int = 2,
        heads: int = 2,
        memory: int = 32,
        mlp_size: int | None = None,
        name: str | None = None,
    ) -> None:
        """Creates the layers.

        Args:
          size: number of features of a timestep, a multiple of `heads`.
          layers: number of layers.
          heads: attention heads of each layer.
          memory: timesteps that are attended to beside the newest.
          mlp_size: hidden units of each layer's MLP; None for `4 * size`.
          name: name of the module.
        """
        super().__init__(name)
        self._size, self._memory = size, memory
        self._embedding = tf.keras.layers.Dense(size, name="embedding")
        self._layers = [
            GatedTransformerLayer(size, heads, memory, mlp_size or 4 * size, name=f"layer_{index}")
            for index in range(layers)
        ]

    @property
    def state_spec(self) -> GTrXLState:
        """`GTrXLState` of `tf.TensorSpec`."""
        shape = (len(self._layers), self._memory, self._size)
        return GTrXLState(tf.TensorSpec(shape, self._embedding.compute_dtype), tf.TensorSpec((), tf.int32))

    def build(self, feature_size: int) -> None:
        """Creates the variables."""
        self.unroll(tf.zeros((1, 1, feature_size)), self.initial_state(1), tf.ones((1, 1), tf.bool))

    @property
    def input_weights(self) -> tuple[tf.Variable, tf.Variable]:
        """Kernel `[F, size]` and bias of the layer that takes the features."""
        return self._embedding.kernel, self._embedding.bias

    def initial_state(self, batch_size: Any) -> GTrXLState:
        """Returns zeros: nothing to attend to."""
        spec = self.state_spec
        memory = tf.zeros((batch_size, *spec.memory.shape), spec.memory.dtype)
        return GTrXLState(memory, tf.zeros((batch_size,), tf.int32))

    def step(self, features: tf.Tensor, state: GTrXLState, first: tf.Tensor) -> tuple[tf.Tensor, GTrXLState]:
        """Processes one timestep: features `[B, F]` and first, bool `[B]`, give outputs `[B, size]`."""
        outputs, state = self.unroll(features[tf.newaxis], state, first[tf.newaxis])
        return outputs[0], state

    def unroll(self, features: tf.Tensor, state: GTrXLState, first: tf.Tensor) -> tuple[tf.Tensor, GTrXLState]:
        """Processes a sequence: features `[T, B, F]` and first, bool `[T, B]`, give outputs `[T, B, size]`.

        T must be known when the function is traced.
        """
        steps = features.shape[0]
        hidden = self._embedding(tf.transpose(features, (1, 0, 2)))
        first = tf.transpose(first)
        mask = _attended(first, state.length, self._memory)
        memories = []
        for index, layer in enumerate(self._layers):
            seen = tf.concat([tf.stop_gradient(tf.cast(state.memory[:, index], hidden.dtype)), hidden], axis=1)
            memories.append(seen[:, -self._memory :])
            hidden = layer(seen, mask)
        # Timesteps since the newest episode began, if that is in the sequence.
        since = tf.reduce_min(tf.where(first, steps - tf.range(steps), steps + self._memory), axis=1)
        length = tf.minimum(tf.minimum(since, state.length + steps), self._memory)
        return tf.transpose(hidden, (1, 0, 2)), GTrXLState(tf.stack(memories, axis=1), length)


class GatedTransformerLayer(tf.keras.layers.Layer):
    """Attention and an MLP, each normalized before and gated after (Parisotto et al. 2019, figure 1, right)."""

    def __init__(self, size: int, heads: int, memory: int, mlp_size: int, name: str | None = None) -> None:
        """Creates the parts; see `GTrXLCore`."""
        super().__init__(name=name)
        self._heads, self._memory = heads, memory
        self._positions = _sinusoids(memory, size)
        self._norms = [tf.keras.layers.LayerNormalization(epsilon=_EPSILON, name=f"norm_{index}") for index in range(2)]
        self._query = tf.keras.layers.Dense(size, use_bias=False, name="query")
        self._key_value = tf.keras.layers.Dense(2 * size, use_bias=False, name="key_value")
        self._relative = tf.keras.layers.Dense(size, use_bias=False, name="relative")
        self._attended = tf.keras.layers.Dense(size, activation="relu", use_bias=False, name="attended")
        self._mlp = [tf.keras.layers.Dense(width, activation="relu", name=f"mlp_{width}") for width in (mlp_size, size)]
        self._gates = [GRUGate(size, name=f"gate_{index}") for index in range(2)]

    def build(self, shape: Any) -> None:
        """Creates the biases of the queries, u and v in Dai et al. 2019."""
        bias = (self._heads, 1, shape[-1] // self._heads)
        self._content_bias = self.add_weight("content_bias", bias, initializer="zeros")
        self._position_bias = self.add_weight("position_bias", bias, initializer="zeros")
        super().build(shape)

    def call(self, seen: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps the inputs of memory and sequence `[B, M + T, size]` to outputs of the sequence `[B, T, size]`.

        `mask`, bool `[B, T, M + T]`, says what a timestep attends to; always itself, and at most M timesteps before.
        """
        inputs = seen[:, self._memory :]
        hidden = self._gates[0](inputs, self._attention(self._norms[0](seen), mask))
        outputs = self._norms[1](hidden)
        for dense in self._mlp:
            outputs = dense(outputs)
        return self._gates[1](hidden, outputs)

    def _attention(self, seen: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        queries = self._split(self._query(seen[:, self._memory :]))
        keys, values = (self._split(part) for part in tf.split(self._key_value(seen), 2, axis=-1))
        relative = self._split(self._relative(tf.cast(self._positions, self.compute_dtype))[tf.newaxis])[0]
        content = tf.einsum("bhtk,bhjk->bhtj", queries + self._content_bias, keys)
        position = tf.einsum("bhtk,hwk->bhtw", queries + self._position_bias, relative)
        logits = (content + _aligned(position)) / math.sqrt(queries.shape[-1])
        logits = tf.where(mask[:, tf.newaxis], logits, logits.dtype.min)
        weighted = tf.einsum("bhtj,bhjk->bthk", tf.nn.softmax(logits), values)
        return self._attended(tf.reshape(weighted, tf.concat([tf.shape(weighted)[:2], [seen.shape[-1]]], axis=0)))

    def _split(self, merged: tf.Tensor) -> tf.Tensor:
        """Splits `[B, N, size]` into heads, `[B, heads, N, size / heads]`."""
        shape = (-1, merged.shape[1], self._heads, merged.shape[2] // self._heads)
        return tf.transpose(tf.reshape(merged, shape), (0, 2, 1, 3))


class GRUGate(tf.keras.layers.Layer):
    """The gate of a GRU in place of a residual connection (Parisotto et al. 2019, section 3.2)."""

    def __init__(self, size: int, name: str | None = None) -> None:
        """Creates a gate for `size` features."""
        super().__init__(name=name)
        self._of_output = tf.keras.layers.Dense(3 * size, use_bias=False, name="of_output")
        self._of_input = tf.keras.layers.Dense(2 * size, use_bias=False, name="of_input")
        self._of_reset = tf.keras.layers.Dense(size, use_bias=False, name="of_reset")

    def build(self, shape: Any) -> None:
        """Creates the bias."""
        self._bias = self.add_weight("bias", shape[-1:], initializer=tf.keras.initializers.Constant(_GATE_BIAS))
        super().build(shape)

    def call(self, inputs: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Combines the inputs x and the outputs y of a part of a layer, `[..., size]` each."""
        reset, update, candidate = tf.split(self._of_output(outputs), 3, axis=-1)
        input_reset, input_update = tf.split(self._of_input(inputs), 2, axis=-1)
        reset = tf.sigmoid(reset + input_reset)
        update = tf.sigmoid(update + input_update - self._bias)
        candidate = tf.tanh(candidate + self._of_reset(reset * inputs))
        return (1 - update) * inputs + update * candidate


def _sinusoids(memory: int, size: int) -> np.ndarray:
    """Returns encodings `[memory + 1, size]` of how long ago a timestep was, from `memory` in the first row to 0."""
    rates = 10_000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.arange(memory, -1, -1)[:, np.newaxis] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :size].astype(np.float32)


def _aligned(by_distance: tf.Tensor) -> tf.Tensor:
    """Moves row t of `[B, H, T, M + 1]` by t columns to the right, which gives `[B, H, T, M + T]`.

    Column w is that of the timestep M - w before; in the result, column t + w is the same timestep for all rows.  What
    is in other columns has no meaning (Dai et al. 2019, appendix B).
    """
    heads, steps, window = by_distance.shape[1:]
    padded = tf.pad(by_distance, ((0, 0), (0, 0), (0, 0), (0, steps)))
    width = window - 1 + steps
    flat = tf.reshape(padded, (-1, heads, steps * (width + 1)))
    return tf.reshape(flat[:, :, : steps * width], (-1, heads, steps, width))


def _attended(first: tf.Tensor, length: tf.Tensor, memory: int) -> tf.Tensor:
    """Returns which timesteps of memory and sequence the timesteps of a sequence attend to, bool `[B, T, M + T]`.

    Args:
      first: bool `[B, T]`, which begin an episode.
      length: int32 `[B]`, how many of the memory, at its end, are of the episode that the sequence begins in.
      memory: M.
    """
    steps = first.shape[1]
    row, column = np.arange(steps)[:, np.newaxis], np.arange(memory + steps)
    window = tf.constant((row <= column) & (column <= row + memory))
    episode = tf.cumsum(tf.cast(first, tf.int32), axis=1)
    same = episode[:, :, tf.newaxis] == episode[:, tf.newaxis]
    remembered = tf.range(memory) >= memory - length[:, tf.newaxis]
    before = (episode == 0)[:, :, tf.newaxis] & remembered[:, tf.newaxis]
    return window & tf.concat([before, same], axis=2)
