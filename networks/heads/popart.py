"""PopArt: a value that is learned normalized, whatever the scale of the returns (van Hasselt et al. 2016).

https://arxiv.org/abs/1602.07714; with several tasks, Hessel et al. 2018, https://arxiv.org/abs/1809.04474.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..network_settings import PopArtSettings
from ..torsos.dense import LINEAR, Layers, hidden_layers

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-4, 1e6
"""Bounds of the standard deviation (Hessel et al. 2018, appendix)."""


class PopArtValueHead(tf.Module):
    """State values sigma (w h + b) + mu, whose linear layer w, b learns returns normalized by their mean and deviation.

    When the statistics mu and sigma change, w and b are rescaled so that all values stay the same ("preserving outputs
    precisely").  The statistics are non-trainable variables, saved in checkpoints.  With several tasks, each has an
    output and statistics of its own.

    Gradients are those of the layer after the rescaling, even if the values were computed before it: a loss may compute
    targets from the values, update the statistics with them (algorithm 1), and then use the values.
    """

    def __init__(
        self,
        layers: Layers = LINEAR,
        rate: float = 3e-4,
        task: str | None = None,
        tasks: int = 1,
        name: str | None = None,
    ):
        """Creates a head.

        Args:
          layers: the hidden layers.
          rate: beta, the weight of a batch in the statistics.  The first batches weigh more, as in a moving average
            with bias correction.
          task: name of the part of the observation that is the index of the task; None for one task.
          tasks: K, the number of tasks.
          name: name of the module.
        """
        super().__init__(name)
        self.task = task
        self._tasks = tasks
        self._rate = rate
        self._layers = hidden_layers(layers)
        self._kernel: tf.Variable | None = None
        self._bias: tf.Variable | None = None
        self._mean = _variable(tf.zeros((tasks,), tf.float64), "mean", trainable=False)
        self._square = _variable(tf.ones((tasks,), tf.float64), "square", trainable=False)
        self._weight = _variable(tf.zeros((tasks,), tf.float64), "weight", trainable=False)

    @property
    def hidden(self) -> Sequence[tf.keras.layers.Layer]:
        """The hidden layers."""
        return self._layers

    @property
    def weights(self) -> tuple[Any, Any]:
        """Kernel and bias of the linear layer; both None before the first call."""
        return self._kernel, self._bias

    @property
    def popart(self) -> "PopArtValueHead":
        """This head, as the head of a network for the value alone."""
        return self

    def __call__(self, features: tf.Tensor, task: tf.Tensor | None = None) -> tf.Tensor:
        """Maps features `[N, F]`, and with several tasks their indices, int `[N]`, to values `[N]`."""
        for layer in self._layers:
            features = layer(features)
        if self._kernel is None:
            kernel = tf.keras.initializers.Orthogonal(1.0)((features.shape[-1], self._tasks), features.dtype)
            self._kernel = _variable(kernel, "kernel")
            self._bias = _variable(tf.zeros((self._tasks,), features.dtype), "bias")
        values = self._values(features)
        if task is None:
            return values[:, 0]
        return tf.gather(values, tf.cast(task, tf.int32), axis=1, batch_dims=1)

    def scale(self, observation: Nest) -> tf.Tensor:
        """Returns sigma for observations of any leading axes: a scalar, or with several tasks `[...]`."""
        sigma = tf.cast(self._sigma(), tf.keras.backend.floatx())
        return sigma[0] if self.task is None else tf.gather(sigma, tf.cast(observation[self.task], tf.int32))

    @property
    def statistics(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The mean mu and the standard deviation sigma of returns, float64 `[K]` each."""
        return self._mean.read_value(), self._sigma()

    def update(self, targets: tf.Tensor, valid: tf.Tensor, observation: Nest) -> None:
        """Moves the statistics towards those of a batch, over all replicas, and rescales the layer.

        Args:
          targets: `[T, B]`, targets of the values, one replica's share.
          valid: bool `[T, B]`, which of them to include.
          observation: the observations `[T, B, ...]` of these values.
        """
        included = tf.cast(valid, tf.float64)[..., tf.newaxis]
        if self.task is not None:
            included *= tf.one_hot(observation[self.task], self._tasks, dtype=tf.float64)
        # Not multiplied by 0, since an invalid target may be infinite.
        target = tf.where(valid, tf.cast(targets, tf.float64), 0.0)[..., tf.newaxis]
        parts = (tf.ones_like(target), target, tf.square(target))
        sums = tf.stack([tf.reduce_sum(included * part, axis=(0, 1)) for part in parts])
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            sums = context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
        number, total, squares = tf.unstack(tf.stop_gradient(sums))
        seen = number > 0
        weight = tf.where(seen, (1.0 - self._rate) * self._weight + self._rate, self._weight)
        share = tf.where(seen, tf.math.divide_no_nan(tf.constant(self._rate, tf.float64), weight), 0.0)
        mean = self._mean + share * (tf.math.divide_no_nan(total, number) - self._mean)
        square = self._square + share * (tf.math.divide_no_nan(squares, number) - self._square)
        self._rescale(mean, _deviation(mean, square))
        self._mean.assign(mean)
        self._square.assign(square)
        self._weight.assign(weight)

    def _rescale(self, mean: tf.Tensor, sigma: tf.Tensor) -> None:
        """Changes the layer so that values with other statistics are those with the current ones."""
        assert self._kernel is not None and self._bias is not None
        before = self._sigma()
        kernel = tf.cast(self._kernel, tf.float64) * (before / sigma)
        bias = (before * tf.cast(self._bias, tf.float64) + self._mean - mean) / sigma
        self._kernel.assign(tf.cast(kernel, self._kernel.dtype))
        self._bias.assign(tf.cast(bias, self._bias.dtype))

    def _sigma(self) -> tf.Tensor:
        return _deviation(self._mean.read_value(), self._square.read_value())

    def _values(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to values of all tasks `[N, K]`."""
        dtype = features.dtype

        @tf.custom_gradient
        def values(features: Any, kernel: Any, bias: Any, mean: Any, sigma: Any) -> Any:
            def gradient(upstream: tf.Tensor) -> Any:
                # Read when the gradient is taken: the layer may have been rescaled in the meantime.
                normalized = upstream * tf.cast(self._sigma(), dtype)
                to_features = tf.matmul(normalized, tf.convert_to_tensor(self._kernel), transpose_b=True)
                to_kernel = tf.matmul(features, normalized, transpose_a=True)
                return to_features, to_kernel, tf.reduce_sum(normalized, axis=0), None, None

            return (tf.matmul(features, kernel) + bias) * sigma + mean, gradient

        mean, sigma = (tf.cast(part, dtype) for part in self.statistics)
        return values(features, tf.convert_to_tensor(self._kernel), tf.convert_to_tensor(self._bias), mean, sigma)


class PolicyWithPopArt(tf.Module):
    """A head for policy and value whose value is a `PopArtValueHead`.

    Args:
      policy: a head with outputs that have a field `value`, which is `()`.
      popart: the head of the value.
      name: name of the module.
    """

    def __init__(self, policy: Any, popart: PopArtValueHead, name: str | None = None):
        super().__init__(name)
        self.policy = policy
        self.popart = popart
        self.task = popart.task

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return self.popart.trainable_variables

    def __call__(self, features: tf.Tensor, task: tf.Tensor | None = None) -> Any:
        """Maps features `[N, F]`, and with several tasks their indices, int `[N]`, to outputs of policy and value."""
        return self.policy(features)._replace(value=self.popart(features, task))


def make_popart_head(spec: EnvironmentSpec, settings: PopArtSettings, layers: Layers) -> PopArtValueHead:
    """Makes the head of the value for an environment."""
    tasks = 1 if settings.task is None else int(spec.observation[settings.task].num_values)
    return PopArtValueHead(layers, settings.rate, settings.task, tasks)


def check_popart(observation: Nest, settings: PopArtSettings) -> None:
    """Checks that an observation has the part that is the index of the task.

    Args:
      observation: nest of dm_env specs.
      settings: the settings of PopArt.

    Raises:
      CallboardError: it does not.
    """
    parts = observation if isinstance(observation, Mapping) else {}
    if settings.task is not None and not isinstance(parts.get(settings.task), specs.DiscreteArray):
        discrete = [key for key, part in parts.items() if isinstance(part, specs.DiscreteArray)]
        known = f"choose from {', '.join(discrete)}" if discrete else "the observation has no such part, leave it out"
        raise CallboardError(
            f"agent.network.popart.task must be a part of the observation that is one discrete choice, not "
            f"{settings.task!r}: {known}"
        )


def return_scale(network: Any, observation: Nest) -> Any:
    """Returns the scale of returns for observations `[T, B, ...]`: `[]` or `[T, B]`, or 1.0 without PopArt."""
    popart = getattr(network, "popart", None)
    return 1.0 if popart is None else popart.scale(observation)


def updated_return_scale(network: Any, targets: tf.Tensor, valid: tf.Tensor, observation: Nest) -> Any:
    """Updates the statistics of a network with PopArt, see `PopArtValueHead.update`; returns its `return_scale`."""
    popart = getattr(network, "popart", None)
    if popart is not None:
        popart.update(targets, valid, observation)
    return return_scale(network, observation)


def _deviation(mean: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    variance = tf.maximum(square - tf.square(mean), 0.0)
    return tf.clip_by_value(tf.sqrt(variance), _SMALLEST_SCALE, _LARGEST_SCALE)


def _variable(value: tf.Tensor, name: str, trainable: bool = True) -> tf.Variable:
    # All replicas assign the same value, so the first replica's is kept.
    return tf.Variable(value, trainable=trainable, name=name, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
