"""Parts of DMPO's networks: a Gaussian policy head, and the dual variables."""

import math

import tensorflow as tf

from ..distributions import DiagonalGaussian
from ..heads.heads import MLPHead
from ..torsos.dense import LINEAR, Layers

_SMALLEST_STD = 1e-6
_SMALLEST_DUAL = 1e-8
_LOWEST_LOG = -18.0


class GaussianHead(tf.Module):
    """A Gaussian policy over unit actions, which may be beyond [-1, 1], as in Acme's `MultivariateNormalDiagHead`."""

    def __init__(
        self, action_size: int, layers: Layers = LINEAR, initial_std: float = 0.7, name: str | None = None
    ) -> None:
        """Creates a head for actions of `action_size` components, whose first standard deviation is `initial_std`."""
        super().__init__(name)
        self._parameters = MLPHead(2 * action_size, layers, gain=0.01)
        self._scale = initial_std / math.log(2)  # softplus(0) is log 2.

    def __call__(self, features: tf.Tensor) -> DiagonalGaussian:
        """Maps features `[N, F]` to a distribution over actions `[N, D]`."""
        mean, raw = tf.split(self._parameters(features), 2, axis=-1)
        return DiagonalGaussian(mean, tf.math.log(self._scale * tf.nn.softplus(raw) + _SMALLEST_STD))


class MpoDuals(tf.Module):
    """Dual variables of MPO, which are positive (softplus of what is trained): temperatures and multipliers."""

    def __init__(
        self,
        action_size: int,
        temperature: float = 10.0,
        alpha_mean: float = 10.0,
        alpha_stddev: float = 1000.0,
        name: str | None = None,
    ) -> None:
        """Creates variables, whose initial values before softplus are given; D multipliers for each constraint."""
        super().__init__(name)

        def variable(value: float, shape: tuple[int, ...], what: str) -> tf.Variable:
            # Optimizers apply the constraint after each update: far below, softplus has no gradient to return by.
            return tf.Variable(
                tf.fill(shape, tf.cast(value, tf.keras.backend.floatx())),
                name=what,
                constraint=lambda raw: tf.maximum(raw, tf.cast(_LOWEST_LOG, raw.dtype)),
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

        self._temperature = variable(temperature, (), "temperature")
        self._penalty_temperature = variable(temperature, (), "penalty_temperature")
        self._alpha_mean = variable(alpha_mean, (action_size,), "alpha_mean")
        self._alpha_stddev = variable(alpha_stddev, (action_size,), "alpha_stddev")

    @property
    def temperature(self) -> tf.Tensor:
        """Temperature of the weights of actions by value, a scalar."""
        return _positive(self._temperature)

    @property
    def penalty_temperature(self) -> tf.Tensor:
        """Temperature of the weights of actions by their distance from the bounds, a scalar."""
        return _positive(self._penalty_temperature)

    @property
    def alpha_mean(self) -> tf.Tensor:
        """Multipliers of the constraints on the mean, `[D]`."""
        return _positive(self._alpha_mean)

    @property
    def alpha_stddev(self) -> tf.Tensor:
        """Multipliers of the constraints on the standard deviation, `[D]`."""
        return _positive(self._alpha_stddev)


def _positive(raw: tf.Variable) -> tf.Tensor:
    return tf.nn.softplus(raw) + tf.cast(_SMALLEST_DUAL, raw.dtype)
