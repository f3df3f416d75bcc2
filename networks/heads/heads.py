"""Heads: map features to the outputs that an agent needs, such as policies and values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..actions.legal_actions import legal_mean
from ..distributions import SquashedGaussian
from ..torsos.dense import LINEAR, Layers, hidden_layers
from ..torsos.parallel_layers import ParallelDense

LOG_STD_BOUNDS = (-10.0, 2.0)
"""Range of the logarithm of a diagonal Gaussian policy's standard deviation."""


class PolicyValue(NamedTuple):
    """Outputs of a discrete policy and a value function, with leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalized log-probabilities of the actions."""
    value: Any
    """`[...]`, state value."""


class WithValue(tf.Module):
    """A head for a policy, with a value function on the same features, each linear or an MLP.

    Args:
      layers: the separate hidden layers of policy and value.
      with_value: whether there is a value; otherwise it is `()`, for another network to give.
      name: name of the module.
    """

    def __init__(self, layers: Layers, with_value: bool, name: str | None = None):
        super().__init__(name)
        self._value = ValueHead(layers) if with_value else None

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return () if self._value is None else self._value.trainable_variables

    def value(self, features: tf.Tensor) -> Any:
        """Maps features `[N, F]` to values `[N]`, or `()`."""
        return () if self._value is None else self._value(features)


class PolicyValueHead(WithValue):
    """A policy over discrete actions and a value function.

    The initial policy is close to uniform, so that early actions explore and the first updates are small.

    Args:
      num_actions: A, the number of actions.
      layers: see `WithValue`; or the sizes of layers with `activation`.
      activation: activation of layers that are given by their sizes.
      with_value: see `WithValue`.
      name: name of the module.
    """

    def __init__(
        self,
        num_actions: int,
        layers: Layers | Sequence[int] = LINEAR,
        activation: Any = "tanh",
        *,
        with_value: bool = True,
        name: str | None = None,
    ):
        layers = layers if isinstance(layers, Layers) else Layers(layers, activation)
        super().__init__(layers, with_value, name)
        self._logits = MLPHead(num_actions, layers, gain=0.01)

    def __call__(self, features: tf.Tensor) -> PolicyValue:
        """Maps features `[N, F]` to logits `[N, A]` and values `[N]`."""
        return PolicyValue(self._logits(features), self.value(features))


class GaussianValue(NamedTuple):
    """Outputs of a Gaussian policy and a value function, with leading axes `[...]`."""

    mean: Any
    """`[..., D]`, mean of the actions."""
    log_std: Any
    """`[..., D]`, logarithm of the standard deviation."""
    value: Any
    """`[...]`, state value."""


class GaussianValueHead(WithValue):
    """A diagonal Gaussian policy and a value function.

    The initial mean of the policy is close to 0.

    Args:
      action_size: D, the number of components of an action.
      layers: see `WithValue`.
      initial_log_std: initial logarithm of the standard deviation.
      std_from_features: whether the standard deviation depends on the features, or is one variable per component.
      log_std_bounds: range to which the logarithm of the standard deviation is clipped.
      with_value: see `WithValue`.
      name: name of the module.
    """

    def __init__(
        self,
        action_size: int,
        layers: Layers = LINEAR,
        initial_log_std: float = 0.0,
        std_from_features: bool = False,
        log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS,
        with_value: bool = True,
        name: str | None = None,
    ):
        super().__init__(layers, with_value, name)
        self._policy = MLPHead((2 if std_from_features else 1) * action_size, layers, gain=0.01)
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

    def __call__(self, features: tf.Tensor) -> GaussianValue:
        """Maps features `[N, F]` to mean and log_std `[N, D]`, and values `[N]`."""
        mean = self._policy(features)
        if self._log_std is None:
            mean, log_std = tf.split(mean, 2, axis=-1)
            log_std = tf.clip_by_value(log_std + self._initial_log_std, *self._log_std_bounds)
        else:
            log_std = tf.broadcast_to(self._log_std, tf.shape(mean))
        return GaussianValue(mean, log_std, self.value(features))


class MLPHead(tf.Module):
    """Hidden layers followed by a linear layer of `outputs` units, initialized orthogonal with a gain."""

    def __init__(self, outputs: int, layers: Layers = LINEAR, gain: float = 1.0, name: str | None = None) -> None:
        super().__init__(name)
        self._layers = hidden_layers(layers)
        if layers.make_noisy is not None:
            self._layers.append(layers.make_noisy(outputs, name="output"))
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

    def __init__(self, layers: Layers = LINEAR, name: str | None = None) -> None:
        super().__init__(1, layers, name=name)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to values `[N]`."""
        return tf.squeeze(super().__call__(features), axis=-1)


class QHead(MLPHead):
    """Values of all actions: maps features `[N, F]` to q `[N, A]`."""


class ParallelHeads(tf.Module):
    """MLPs of the same shape that share nothing, computed together.

    Args:
      number: K, the number of MLPs.
      outputs: units of the last layer of each.
      layers: hidden layers of each.
      dropout: see `dense.hidden_layers`.
      name: name of the module.
    """

    def __init__(
        self, number: int, outputs: int, layers: Layers = LINEAR, dropout: float = 0.0, name: str | None = None
    ):
        super().__init__(name)
        self._number = number
        self._layers = hidden_layers(layers, number=number, dropout=dropout)
        self._layers.append(ParallelDense(number, outputs, gain=1.0, name="output"))

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to `[K, N, outputs]`."""
        features = tf.tile(features[tf.newaxis], (self._number, 1, 1))
        for layer in self._layers:
            features = layer(features)
        return features


class DuelingQHead(tf.Module):
    """Values of all actions as Q(x, a) = V(x) + A(x, a) - mean_b A(x, b) (Wang et al. 2016, equation (9)).

    With an action mask, the mean is that of the legal actions.
    """

    takes_legal = True

    def __init__(self, num_actions: int, layers: Layers = LINEAR, name: str | None = None) -> None:
        """Creates two streams with the hidden layers `layers` each, in the paper one of 512 units."""
        super().__init__(name)
        self._value = MLPHead(1, layers)
        self._advantage = MLPHead(num_actions, layers)

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
        self, num_actions: int, atoms: int, layers: Layers = LINEAR, dueling: bool = True, name: str | None = None
    ) -> None:
        """Creates a head for `num_actions` actions.

        Args:
          num_actions: A, the number of actions.
          atoms: M, the numbers of each distribution.
          layers: hidden layers of each stream.
          dueling: whether there are two streams.
          name: name of the module.
        """
        super().__init__(name)
        self._shape = (num_actions, atoms)
        self._value = MLPHead(atoms, layers) if dueling else None
        self._advantage = MLPHead(num_actions * atoms, layers)

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
        layers: Layers = LINEAR,
        log_std_bounds: tuple[float, float] = (-20.0, 2.0),
        name: str | None = None,
    ) -> None:
        """Creates a head for actions of `action_size` components; the Gaussian's log_std is clipped to the bounds."""
        super().__init__(name)
        self._parameters = MLPHead(2 * action_size, layers, gain=0.01)
        self._log_std_bounds = log_std_bounds

    def __call__(self, features: tf.Tensor) -> SquashedGaussian:
        """Maps features `[N, F]` to a distribution over actions `[N, D]`."""
        mean, log_std = tf.split(self._parameters(features), 2, axis=-1)
        return SquashedGaussian(mean, tf.clip_by_value(log_std, *self._log_std_bounds))
