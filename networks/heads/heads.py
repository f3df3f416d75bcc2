"""Heads: map features to the outputs that an agent needs, such as policies and values."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..actions.legal_actions import legal_mean
from ..distributions import SquashedGaussian
from ..torsos.dense import Normalization, hidden_layers

MakeNoisy = Callable[..., tf.keras.layers.Layer] | None
"""A `stochastic_layers.NoisyLayers`, or None for layers without noise."""

LOG_STD_BOUNDS = (-10.0, 2.0)
"""Range of the logarithm of a diagonal Gaussian policy's standard deviation."""


class PolicyValue(NamedTuple):
    """Outputs of a discrete policy and a value function, with leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalized log-probabilities of the actions."""
    value: Any
    """`[...]`, state value."""


class PolicyValueHead(tf.Module):
    """A policy over discrete actions and a value function on shared features, each linear or an MLP.

    The initial policy is close to uniform, so that early actions explore and the first updates are small.
    """

    def __init__(
        self,
        num_actions: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "tanh",
        layer_norm: bool = False,
        with_value: bool = True,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions.

        Args:
          num_actions: A, the number of actions.
          hidden_sizes: sizes of the separate hidden layers of policy and value.
          activation: activation of the hidden layers.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          with_value: whether there is a value; otherwise it is `()`, for another network to give.
          name: name of the module.
        """
        super().__init__(name)
        self._logits = MLPHead(num_actions, hidden_sizes, activation, gain=0.01, layer_norm=layer_norm)
        self._value = ValueHead(hidden_sizes, activation, layer_norm) if with_value else None

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return () if self._value is None else self._value.trainable_variables

    def __call__(self, features: tf.Tensor) -> PolicyValue:
        """Maps features `[N, F]` to logits `[N, A]` and values `[N]`."""
        return PolicyValue(logits=self._logits(features), value=() if self._value is None else self._value(features))


class GaussianValue(NamedTuple):
    """Outputs of a Gaussian policy and a value function, with leading axes `[...]`."""

    mean: Any
    """`[..., D]`, mean of the actions."""
    log_std: Any
    """`[..., D]`, logarithm of the standard deviation."""
    value: Any
    """`[...]`, state value."""


class GaussianValueHead(tf.Module):
    """A diagonal Gaussian policy and a value function on shared features, each linear or an MLP.

    The initial mean of the policy is close to 0.
    """

    def __init__(
        self,
        action_size: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "tanh",
        initial_log_std: float = 0.0,
        std_from_features: bool = False,
        log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS,
        layer_norm: bool = False,
        with_value: bool = True,
        name: str | None = None,
    ) -> None:
        """Creates a head for actions of `action_size` components.

        Args:
          action_size: D, the number of components.
          hidden_sizes: sizes of the separate hidden layers of policy and value.
          activation: activation of the hidden layers.
          initial_log_std: initial logarithm of the standard deviation.
          std_from_features: whether the standard deviation depends on the features, or is one variable per component.
          log_std_bounds: range to which the logarithm of the standard deviation is clipped.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          with_value: whether there is a value; otherwise it is `()`, for another network to give.
          name: name of the module.
        """
        super().__init__(name)
        outputs = (2 if std_from_features else 1) * action_size
        self._policy = MLPHead(outputs, hidden_sizes, activation, gain=0.01, layer_norm=layer_norm)
        self._value = ValueHead(hidden_sizes, activation, layer_norm) if with_value else None
        self._initial_log_std = initial_log_std
        self._log_std_bounds = log_std_bounds
        self._log_std = None
        if not std_from_features:
            dtype = tf.keras.backend.floatx()
            # Optimizers apply the constraint after each update.  Clipping on read instead would leave no gradient
            # beyond the bounds, and the variable could not return.  All replicas assign the same value.
            self._log_std = tf.Variable(
                tf.fill((action_size,), tf.cast(initial_log_std, dtype)),
                name="log_std",
                constraint=lambda log_std: tf.clip_by_value(log_std, *log_std_bounds),
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return () if self._value is None else self._value.trainable_variables

    def __call__(self, features: tf.Tensor) -> GaussianValue:
        """Maps features `[N, F]` to mean and log_std `[N, D]`, and values `[N]`."""
        mean = self._policy(features)
        if self._log_std is None:
            mean, log_std = tf.split(mean, 2, axis=-1)
            log_std = tf.clip_by_value(log_std + self._initial_log_std, *self._log_std_bounds)
        else:
            log_std = tf.broadcast_to(self._log_std, tf.shape(mean))
        return GaussianValue(mean, log_std, () if self._value is None else self._value(features))


class MLPHead(tf.Module):
    """Optional hidden layers followed by a linear layer."""

    def __init__(
        self,
        outputs: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        gain: float = 1.0,
        layer_norm: Normalization = False,
        make_noisy: MakeNoisy = None,
        name: str | None = None,
    ) -> None:
        """Creates a head with output vectors of length `outputs`.

        Args:
          outputs: units of the linear layer.
          hidden_sizes: sizes of the hidden layers, whose weights are initialized orthogonal with gain sqrt(2).
          activation: activation of the hidden layers.
          gain: gain of the linear layer's orthogonal initializer.
          layer_norm: how the hidden layers are normalized, as in `dense.hidden_layers`.
          make_noisy: see `dense.hidden_layers`; also for the linear layer.
          name: name of the module.
        """
        super().__init__(name)
        self._layers = hidden_layers(hidden_sizes, activation, layer_norm, make_noisy=make_noisy)
        if make_noisy is not None:
            self._layers.append(make_noisy(outputs, name="output"))
        else:
            output_kernel = tf.keras.initializers.Orthogonal(gain)
            self._layers.append(tf.keras.layers.Dense(outputs, kernel_initializer=output_kernel, name="output"))

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to `[N, outputs]`."""
        for layer in self._layers:
            features = layer(features)
        return features

    @property
    def hidden(self) -> Sequence[tf.keras.layers.Layer]:
        """All layers, of which the last one is linear."""
        return self._layers

    @property
    def output_layer(self) -> tf.keras.layers.Layer:
        """The linear layer."""
        return self._layers[-1]


class ValueHead(MLPHead):
    """State values: maps features `[N, F]` to values `[N]`."""

    def __init__(
        self,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "tanh",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Creates a head with hidden layers; see `MLPHead`."""
        super().__init__(1, hidden_sizes, activation, layer_norm=layer_norm, name=name)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to values `[N]`."""
        return tf.squeeze(super().__call__(features), axis=-1)


class QHead(MLPHead):
    """Values of all actions: maps features `[N, F]` to q `[N, A]`."""

    def __init__(
        self,
        num_actions: int,
        stream_size: int = 0,
        activation: Any = "relu",
        layer_norm: bool = False,
        make_noisy: MakeNoisy = None,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions, with a hidden layer of `stream_size` units; 0 for none."""
        sizes = _hidden(stream_size)
        super().__init__(num_actions, sizes, activation, layer_norm=layer_norm, make_noisy=make_noisy, name=name)


class DuelingQHead(tf.Module):
    """Values of all actions as Q(x, a) = V(x) + A(x, a) - mean_b A(x, b) (Wang et al. 2016, equation (9)).

    With an action mask, the mean is that of the legal actions.
    """

    takes_legal = True

    def __init__(
        self,
        num_actions: int,
        stream_size: int = 0,
        activation: Any = "relu",
        layer_norm: bool = False,
        make_noisy: MakeNoisy = None,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions.

        Args:
          num_actions: A, the number of actions.
          stream_size: units of the hidden layer in each of the two streams (512 in the paper); 0 for none.
          activation: activation of that layer.
          layer_norm: whether it is normalized, as in `dense.hidden_layers`.
          make_noisy: see `MLPHead`.
          name: name of the module.
        """
        super().__init__(name)
        self._value = MLPHead(1, _hidden(stream_size), activation, layer_norm=layer_norm, make_noisy=make_noisy)
        self._advantage = MLPHead(
            num_actions, _hidden(stream_size), activation, layer_norm=layer_norm, make_noisy=make_noisy
        )

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> tf.Tensor:
        """Maps features `[N, F]` and which actions are legal, bool `[N, A]`, to q `[N, A]`."""
        advantage = self._advantage(features)
        return self._value(features) + advantage - legal_mean(advantage, legal)


class DistributionalQHead(tf.Module):
    """Distributions of the values of all actions, each given by several numbers (Bellemare et al. 2017, section 4.1).

    With dueling, the numbers are sums as in `DuelingQHead` (Hessel et al. 2018, "The integrated agent").
    """

    takes_legal = True

    def __init__(
        self,
        num_actions: int,
        atoms: int,
        stream_size: int = 0,
        dueling: bool = True,
        activation: Any = "relu",
        layer_norm: bool = False,
        make_noisy: MakeNoisy = None,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions.

        Args:
          num_actions: A, the number of actions.
          atoms: M, the numbers of each distribution.
          stream_size: units of the hidden layer in each stream; 0 for none.
          dueling: whether there are two streams.
          activation: activation of the hidden layers.
          layer_norm: whether they are normalized, as in `dense.hidden_layers`.
          make_noisy: see `MLPHead`.
          name: name of the module.
        """
        super().__init__(name)
        self._shape = (num_actions, atoms)
        sizes = _hidden(stream_size)
        self._value = (
            MLPHead(atoms, sizes, activation, layer_norm=layer_norm, make_noisy=make_noisy) if dueling else None
        )
        self._advantage = MLPHead(num_actions * atoms, sizes, activation, layer_norm=layer_norm, make_noisy=make_noisy)

    @property
    def atom_layers(self) -> Sequence[tf.keras.layers.Layer]:
        """The linear layers whose sum the numbers are, see `moved_atoms.move_atoms`."""
        return [head.output_layer for head in (self._value, self._advantage) if head is not None]

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> tf.Tensor:
        """Maps features `[N, F]` and legal actions, bool `[N, A]`, to the numbers of all distributions `[N, A, M]`."""
        advantage = tf.reshape(self._advantage(features), (-1, *self._shape))
        if self._value is None:
            return advantage
        value = self._value(features)[:, tf.newaxis]
        return value + advantage - legal_mean(advantage, None if legal is None else legal[..., tf.newaxis], axis=1)


class SquashedGaussianHead(tf.Module):
    """A Gaussian policy squashed to [-1, 1]^D, with a standard deviation that depends on the features.

    The initial policy is close to tanh of a standard normal, which covers the cube.
    """

    def __init__(
        self,
        action_size: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        log_std_bounds: tuple[float, float] = (-20.0, 2.0),
        layer_norm: Normalization = False,
        name: str | None = None,
    ) -> None:
        """Creates a head for actions of `action_size` components.

        Args:
          action_size: D, the number of components.
          hidden_sizes: sizes of the hidden layers.
          activation: activation of the hidden layers.
          log_std_bounds: range to which the logarithm of the Gaussian's standard deviation is clipped.
          layer_norm: how the hidden layers are normalized, as in `dense.hidden_layers`.
          name: name of the module.
        """
        super().__init__(name)
        self._parameters = MLPHead(2 * action_size, hidden_sizes, activation, gain=0.01, layer_norm=layer_norm)
        self._log_std_bounds = log_std_bounds

    def __call__(self, features: tf.Tensor) -> SquashedGaussian:
        """Maps features `[N, F]` to a distribution over actions `[N, D]`."""
        mean, log_std = tf.split(self._parameters(features), 2, axis=-1)
        return SquashedGaussian(mean, tf.clip_by_value(log_std, *self._log_std_bounds))


def _hidden(stream_size: int) -> tuple[int, ...]:
    return (stream_size,) if stream_size else ()
