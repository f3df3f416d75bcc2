"""Cores: the recurrent part of a network, which carries state from one observation to the next."""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from ..data import Nest


class Core(Protocol):
    """Interface of a network's core.  Features are `[B, F]` in a step and `[T, B, F]` in an unroll."""

    @property
    def state_spec(self) -> Nest:
        """Nest of `tf.TensorSpec` of the state, without the batch axis; complete after `build`."""

    @property
    def trainable_variables(self) -> Any:
        """Trainable variables; complete after `build`."""

    def build(self, feature_size: int) -> None:
        """Creates the variables for features of size `feature_size`."""

    def initial_state(self, batch_size: Any) -> Nest:
        """Returns the state at the start of an episode, leaves `[batch_size, ...]`."""

    def step(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """Processes one timestep, after a reset of the state where `first`, bool `[B]`, is True."""

    def unroll(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """Processes a sequence of timesteps; `first` is bool `[T, B]`."""


class FeedForwardCore(tf.Module):
    """A core without memory: features pass through and the state is `()`."""

    state_spec: Nest = ()

    def build(self, feature_size: int) -> None:
        """Does nothing: there are no variables."""

    def initial_state(self, batch_size: Any) -> Nest:
        """Returns `()`."""
        return ()

    def step(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """Returns the features unchanged."""
        return features, state

    def unroll(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """Returns the features unchanged."""
        return features, state


class LSTMState(NamedTuple):
    """State of an LSTM, leaves `[B, size]`."""

    hidden: Any
    cell: Any


class LSTMCore(tf.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) whose state is reset where an episode begins."""

    def __init__(self, size: int, name: str | None = None) -> None:
        """Creates an LSTM with `size` cells."""
        super().__init__(name)
        self._size = size
        self._lstm = tf.keras.layers.LSTMCell(size)

    @property
    def state_spec(self) -> LSTMState:
        """`LSTMState` of `tf.TensorSpec` `[size]`."""
        spec = tf.TensorSpec((self._size,), self._lstm.compute_dtype)
        return LSTMState(hidden=spec, cell=spec)

    def build(self, feature_size: int) -> None:
        """Creates the variables."""
        with tf.name_scope(self._lstm.name):
            self._lstm.build((None, feature_size))

    @property
    def input_weights(self) -> tuple[tf.Variable, tf.Variable]:
        """Kernel `[F, 4 * size]` and bias of the layer that takes the features."""
        return self._lstm.kernel, self._lstm.bias

    def initial_state(self, batch_size: Any) -> LSTMState:
        """Returns zeros."""
        zeros = tf.zeros((batch_size, self._size), self._lstm.compute_dtype)
        return LSTMState(hidden=zeros, cell=zeros)

    def step(self, features: tf.Tensor, state: LSTMState, first: tf.Tensor) -> tuple[tf.Tensor, LSTMState]:
        """Processes one timestep: features `[B, F]` and first, bool `[B]`, give outputs `[B, size]`."""
        state = _timestep(self._project(features), state, first[:, tf.newaxis], self._recurrent_kernel())
        return state.hidden, state

    def unroll(self, features: tf.Tensor, state: LSTMState, first: tf.Tensor) -> tuple[tf.Tensor, LSTMState]:
        """Processes a sequence: features `[T, B, F]` and first, bool `[T, B]`, give outputs `[T, B, size]`.

        T must be known when the function is traced.
        """
        inputs, resets = tf.unstack(self._project(features)), tf.unstack(first[:, :, tf.newaxis])
        kernel = self._recurrent_kernel()
        # A nested `tf.function` is traced and differentiated once, not T times.  An unroll of 20 steps is traced four
        # times faster than without it, and runs a fifth to a half faster than with `tf.while_loop`.
        timestep = _timestep if tf.executing_eagerly() else tf.function(_timestep, autograph=False)
        hidden = []
        for t in range(len(inputs)):
            state = timestep(inputs[t], state, resets[t], kernel)
            hidden.append(state.hidden)
        return tf.stack(hidden), state

    def _project(self, features: tf.Tensor) -> tf.Tensor:
        """Computes the inputs' part of the gates; one matrix product over all timesteps is faster than one per step."""
        return tf.tensordot(features, self._lstm.kernel, 1) + self._lstm.bias

    def _recurrent_kernel(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._lstm.recurrent_kernel)


def _timestep(inputs: tf.Tensor, state: LSTMState, first: tf.Tensor, recurrent_kernel: tf.Tensor) -> LSTMState:
    """Runs an LSTM for one timestep: inputs `[B, 4 * size]`, first `[B, 1]`, recurrent kernel `[size, 4 * size]`."""
    hidden = tf.where(first, tf.zeros_like(state.hidden), state.hidden)
    cell = tf.where(first, tf.zeros_like(state.cell), state.cell)
    # Keras's `LSTMCell` orders the gates in its kernels like this.
    write, keep, candidate, read = tf.split(inputs + tf.matmul(hidden, recurrent_kernel), 4, axis=-1)
    cell = tf.sigmoid(keep) * cell + tf.sigmoid(write) * tf.tanh(candidate)
    return LSTMState(hidden=tf.sigmoid(read) * tf.tanh(cell), cell=cell)


class GRUCore(tf.Module):
    """A gated recurrent unit (Cho et al. 2014, https://arxiv.org/abs/1406.1078) whose state is reset at episodes.

    The reset gate is applied after the recurrent matrix product, as by default in Keras and cuDNN.
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        """Creates a GRU with `size` units."""
        super().__init__(name)
        self._size = size
        self._gru = tf.keras.layers.GRUCell(size, reset_after=True)

    @property
    def state_spec(self) -> tf.TensorSpec:
        """`tf.TensorSpec` `[size]`."""
        return tf.TensorSpec((self._size,), self._gru.compute_dtype)

    def build(self, feature_size: int) -> None:
        """Creates the variables."""
        with tf.name_scope(self._gru.name):
            self._gru.build((None, feature_size))

    @property
    def input_weights(self) -> tuple[tf.Variable, tf.Variable]:
        """Kernel `[F, 3 * size]` and bias `[2, 3 * size]` of the layer that takes the features."""
        return self._gru.kernel, self._gru.bias

    def initial_state(self, batch_size: Any) -> tf.Tensor:
        """Returns zeros."""
        return tf.zeros((batch_size, self._size), self._gru.compute_dtype)

    def step(self, features: tf.Tensor, state: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Processes one timestep: features `[B, F]` and first, bool `[B]`, give outputs `[B, size]`."""
        state = _gru_timestep(self._project(features), state, first[:, tf.newaxis], *self._recurrent())
        return state, state

    def unroll(self, features: tf.Tensor, state: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Processes a sequence: features `[T, B, F]` and first, bool `[T, B]`, give outputs `[T, B, size]`.

        T must be known when the function is traced.
        """
        inputs, resets = tf.unstack(self._project(features)), tf.unstack(first[:, :, tf.newaxis])
        kernel, bias = self._recurrent()
        timestep = _gru_timestep if tf.executing_eagerly() else tf.function(_gru_timestep, autograph=False)
        outputs = []
        for t in range(len(inputs)):
            state = timestep(inputs[t], state, resets[t], kernel, bias)
            outputs.append(state)
        return tf.stack(outputs), state

    def _project(self, features: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(features, self._gru.kernel, 1) + self._gru.bias[0]

    def _recurrent(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self._gru.recurrent_kernel), self._gru.bias[1]


def _gru_timestep(inputs: tf.Tensor, state: tf.Tensor, first: tf.Tensor, kernel: tf.Tensor, bias: Any) -> tf.Tensor:
    """Runs a GRU for one timestep: inputs `[B, 3 * size]`, state `[B, size]`, first `[B, 1]`."""
    state = tf.where(first, tf.zeros_like(state), state)
    # Keras's `GRUCell` orders the gates in its kernels like this.
    keep, reset, candidate = tf.split(inputs, 3, axis=-1)
    state_keep, state_reset, state_candidate = tf.split(tf.matmul(state, kernel) + bias, 3, axis=-1)
    keep = tf.sigmoid(keep + state_keep)
    candidate = tf.tanh(candidate + tf.sigmoid(reset + state_reset) * state_candidate)
    return keep * state + (1 - keep) * candidate
