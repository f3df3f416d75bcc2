"""Optimizers made from settings."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...errors import CallboardError
from ...settings.named_objects import check_options, import_object
from ..schedules import Schedule
from ..settings.optimizer_options import OPTIMIZERS, WITHOUT_EPSILON
from ..settings.optimizer_settings import OptimizerSettings
from .decaying_rate import DecayingRate, left_of_run
from .gradient_step import Objective
from .split_optimizer import ScaledRate, SplitOptimizer

_CLASSES = {name.lower(): getattr(tf.keras.optimizers, name) for name in dir(tf.keras.optimizers)}


class RMSProp(tf.keras.optimizers.RMSprop):
    """RMSProp as in TensorFlow 1, with moving averages of squared gradients that start at 1.

    Keras starts them at 0, so its first step is `1 / sqrt(1 - rho)` times the learning rate for every parameter,
    however small its gradient.
    """

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        built = getattr(self, "_built", False)
        super().build(var_list)
        if not built:
            for average in self._velocities:
                average.assign(tf.ones_like(average))


class Adam(tf.keras.optimizers.Adam):
    """Keras's Adam with one operation for a variable, where Keras has a dozen.

    In an update of a small network, they take as much time as the loss.
    """

    def _compute_current_learning_rate(self) -> None:
        """Begins a step."""
        super()._compute_current_learning_rate()
        # Without TensorFlow's tracking, which would save it in checkpoints.
        object.__setattr__(self, "_of_step", {})

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        if self.amsgrad or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable)
            return
        index = self._index_dict[self._var_key(variable)]
        # What all variables have in common is computed once for a step, on each device.
        key = variable.device, variable.dtype
        if key not in self._of_step:
            self._of_step[key] = self._rates(variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].handle,
            v=self._velocities[index].handle,
            grad=gradient,
            **self._of_step[key],
        )

    def _rates(self, dtype: tf.DType) -> dict[str, tf.Tensor]:
        step = tf.cast(self.iterations + 1, dtype)
        beta_1, beta_2 = tf.cast(self.beta_1, dtype), tf.cast(self.beta_2, dtype)
        return {
            "beta1_power": tf.pow(beta_1, step),
            "beta2_power": tf.pow(beta_2, step),
            "lr": tf.cast(self.learning_rate, dtype),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.cast(self.epsilon, dtype),
        }


def make_objective(
    name: str,
    variables: Sequence[tf.Variable],
    settings: OptimizerSettings,
    steps: int,
    value_variables: Sequence[tf.Variable] = (),
    value_factor: float = 1.0,
) -> Objective:
    """Returns the loss with that name, trained by an optimizer with these settings.

    Args:
      name: see `Objective`, as for the variables.
      variables: all variables to train.
      settings: see `make_optimizer`, as for `steps`.
      steps: learner steps of the run.
      value_variables: see `make_split_optimizer`, as for `value_factor`.
      value_factor: 1 for one learning rate.
    """
    optimizer = make_split_optimizer(settings, steps, value_variables, value_factor)
    return Objective(name, variables, optimizer, settings.max_gradient_norm)


def make_split_optimizer(
    settings: OptimizerSettings, steps: int | None, value_variables: Sequence[tf.Variable], value_factor: float
) -> Any:
    """Creates an optimizer whose learning rate is `value_factor` times as large for some variables.

    Raises:
      CallboardError: there are no such variables, though the factor is not 1.
    """
    if value_factor == 1.0:
        return make_optimizer(settings, steps)
    if not value_variables:
        raise CallboardError(
            "which variables are those of the value only is not known: let the network's head have a property "
            "value_variables, or set agent.value_learning_rate_scale to 1"
        )
    scaled = make_optimizer(settings, steps, value_factor)
    return SplitOptimizer(make_optimizer(settings, steps), scaled, value_variables, value_factor)


def make_optimizer(
    settings: OptimizerSettings, steps: int | None, factor: float = 1.0
) -> tf.keras.optimizers.Optimizer:
    """Creates an optimizer.

    Args:
      settings: its settings; clipping is the learner's.
      steps: learner steps of the run, over which the learning rate decays if `learning_rate_decay` is set.  None for an
        optimizer whose learning rate the learner assigns.
      factor: factor of the learning rate.

    Raises:
      CallboardError: the learning rate is still a `Schedule`, which `LiveSettings` replaces by a variable; or the
        factory that `name` refers to cannot be imported, or returns something other than an optimizer.
    """
    rate: Any = settings.learning_rate
    if isinstance(rate, Schedule):
        raise CallboardError("a schedule needs steps: make the learner with LiveSettings(agent).agent, and follow it")
    if steps is not None:
        # A schedule even for a constant rate: a learning rate in a variable would be restored from the checkpoint, and
        # a run resumed with another learning rate would continue with the old one.
        if settings.learning_rate_decay is not False:
            rate = DecayingRate(rate, steps, left_of_run(settings.learning_rate_decay))
        else:
            rate = tf.keras.optimizers.schedules.PolynomialDecay(rate, max(1, steps), end_learning_rate=rate)
        if factor != 1.0:
            rate = ScaledRate(rate, factor)
    if settings.name not in OPTIMIZERS:
        return _made_by_user(settings, rate)
    options = dict(settings.options)
    if settings.name not in WITHOUT_EPSILON:
        options["epsilon"] = settings.epsilon
    if settings.name == "rmsprop":
        return RMSProp(rate, rho=settings.rmsprop_decay, jit_compile=False, **options)
    if settings.name == "adam":
        return Adam(rate, jit_compile=False, **options)
    return _CLASSES[settings.name](rate, jit_compile=False, **options)


def _made_by_user(settings: OptimizerSettings, rate: Any) -> tf.keras.optimizers.Optimizer:
    create = import_object("optimizer", settings.name)
    check_options("optimizer", settings.name, create, settings.options)
    made = create(rate, **settings.options)
    if not isinstance(made, tf.keras.optimizers.Optimizer):
        raise CallboardError(f"optimizer {settings.name!r} must return a Keras optimizer, not {type(made).__name__}")
    return made
