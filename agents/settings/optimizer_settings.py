"""Settings of optimizers, which all agents share."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError
from ...settings.named_objects import check_options, import_object
from ...settings.setting_types import PositiveFloat, UnitInterval
from ..schedules import ScheduledPositiveFloat
from .optimizer_options import check_optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Settings of an optimizer.

    Attributes:
      name: adadelta, adafactor, adagrad, adam, adamax, adamw, ftrl, nadam, rmsprop or sgd, those of Keras; or
        package.module:factory, which takes the learning rate and the options and returns a Keras optimizer.  The
        moving average of rmsprop starts at 1, as in TensorFlow 1.
      learning_rate: learning rate, or a schedule of it.
      learning_rate_decay: whether a learning rate that is a number decays linearly to 0 over the run, by its
        environment steps; by its learner steps or seconds where such a limit is nearer.  In a run that is resumed with
        more steps it begins where it was, and rises within a tenth of what is left to the rate of the longer run.
      epsilon: added to the denominator of the update by Adam and similar ones, and under its square root by RMSProp.
      rmsprop_decay: decay of RMSProp's moving average.
      max_gradient_norm: global norm to which gradients are clipped; None for no clipping.
      options: Keras's other options of the optimizer, such as {weight_decay: 1e-4} of adamw.
    """

    name: str = "adam"
    learning_rate: ScheduledPositiveFloat
    learning_rate_decay: bool = True
    epsilon: PositiveFloat
    rmsprop_decay: UnitInterval = 0.99
    max_gradient_norm: PositiveFloat | None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def problem(self) -> str:
        """The fault in the name or the options; empty if there is none."""
        try:
            check_optimizer(self.name, self.options)
        except CallboardError as error:
            return str(error)
        return ""


def check_own_optimizers(agent: Any) -> None:
    """Checks the optimizers of an agent that are `package.module:factory`, without making them.

    Raises:
      CallboardError: a factory does not exist, or does not take its options.
    """
    for field in dataclasses.fields(agent):
        settings = getattr(agent, field.name)
        if not isinstance(settings, OptimizerSettings) or ":" not in settings.name:
            continue
        factory = import_object("optimizer", settings.name)
        if not callable(factory):
            raise CallboardError(f"optimizer {settings.name!r} is not a function but of type {type(factory).__name__}")
        check_options("optimizer", settings.name, factory, settings.options)
        try:
            inspect.signature(factory).bind(0.0, **settings.options)
        except TypeError as error:
            raise CallboardError(f"agent.{field.name}.options do not fit {settings.name}: {error}") from error
