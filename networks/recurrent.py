"""Cores: what a network carries from one observation to the next."""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from ..data import Nest


class Core(Protocol):
    """What a network asks of its core.  Features are `[B, F]` in a step and `[T, B, F]` in an unroll."""

    @property
    def state_spec(self) -> Nest:
        """Nest of `tf.TensorSpec`, without the axis B."""

    @property
    def trainable_variables(self) -> Any:
        """Complete after `build`."""

    def build(self, feature_size: int) -> None:
        """Makes the variables for features of that size."""

    def initial_state(self, batch_size: Any) -> Nest:
        """The state at the start of an episode, leaves `[batch_size, ...]`."""

    def step(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """One timestep; the state is reset where `first`, bool `[B]`, before the features are used."""

    def unroll(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """A sequence of timesteps; `first` is bool `[T, B]`."""


class FeedForwardCore(tf.Module):
    """No memory: features pass through and the state is `()`."""

    state_spec: Nest = ()

    def build(self, feature_size: int) -> None:
        """There are no variables."""

    def initial_state(self, batch_size: Any) -> Nest:
        """`()`."""
        return ()

    def step(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """The features as they are."""
        return features, state

    def unroll(self, features: tf.Tensor, state: Nest, first: tf.Tensor) -> tuple[tf.Tensor, Nest]:
        """The features as they are."""
        return features, state


class LSTMState(NamedTuple):
    """Leaves `[B, size]`."""

    hidden: Any
    cell: Any


class LSTMCore(tf.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) that forgets where an episode begins."""

    def __init__(self, size: int, name: str | None = None) -> None:
        """An LSTM with `size` cells."""
        super().__init__(name)
        self._size = size
        self._lstm = tf.keras.layers.LSTMCell(size)

    @property
    def state_spec(self) -> LSTMState:
        """`LSTMState` of `tf.TensorSpec` `[size]`."""
        spec = tf.TensorSpec((self._size,), self._lstm.compute_dtype)
        return LSTMState(hidden=spec, cell=spec)

    def build(self, feature_size: int) -> None:
        """Makes the variables."""
        with tf.name_scope(self._lstm.name):
            self._lstm.build((None, feature_size))

    def initial_state(self, batch_size: Any) -> LSTMState:
        """Zeros."""
        zeros = tf.zeros((batch_size, self._size), self._lstm.compute_dtype)
        return LSTMState(hidden=zeros, cell=zeros)

    def step(self, features: tf.Tensor, state: LSTMState, first: tf.Tensor) -> tuple[tf.Tensor, LSTMState]:
        """One timestep: features `[B, F]`, first bool `[B]`; gives `[B, size]`."""
        state = _timestep(self._project(features), state, first[:, tf.newaxis], self._recurrent_kernel())
        return state.hidden, state

    def unroll(self, features: tf.Tensor, state: LSTMState, first: tf.Tensor) -> tuple[tf.Tensor, LSTMState]:
        """A sequence: features `[T, B, F]`, first bool `[T, B]`; gives `[T, B, size]`.  T must be known."""
        inputs, resets = tf.unstack(self._project(features)), tf.unstack(first[:, :, tf.newaxis])
        kernel = self._recurrent_kernel()
        # A function in a graph of its own is traced and differentiated once, not T times: an unroll of 20 is traced
        # four times faster than without, and runs a fifth to a half faster than `tf.while_loop`.
        timestep = _timestep if tf.executing_eagerly() else tf.function(_timestep, autograph=False)
        hidden = []
        for t in range(len(inputs)):
            state = timestep(inputs[t], state, resets[t], kernel)
            hidden.append(state.hidden)
        return tf.stack(hidden), state

    def _project(self, features: tf.Tensor) -> tf.Tensor:
        """The inputs' part of the gates: one large product for all times is faster than one for each."""
        return tf.tensordot(features, self._lstm.kernel, 1) + self._lstm.bias

    def _recurrent_kernel(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._lstm.recurrent_kernel)


def _timestep(inputs: tf.Tensor, state: LSTMState, first: tf.Tensor, recurrent_kernel: tf.Tensor) -> LSTMState:
    """One timestep of an LSTM: inputs `[B, 4 * size]`, first `[B, 1]`, recurrent kernel `[size, 4 * size]`."""
    hidden = tf.where(first, tf.zeros_like(state.hidden), state.hidden)
    cell = tf.where(first, tf.zeros_like(state.cell), state.cell)
    # The order of the gates in the kernels of `LSTMCell`.
    write, keep, candidate, read = tf.split(inputs + tf.matmul(hidden, recurrent_kernel), 4, axis=-1)
    cell = tf.sigmoid(keep) * cell + tf.sigmoid(write) * tf.tanh(candidate)
    return LSTMState(hidden=tf.sigmoid(read) * tf.tanh(cell), cell=cell)
