"""Settings of optimizers, which all agents share."""

import dataclasses
from typing import Literal

from ..setting_types import PositiveFloat, UnitInterval


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Settings of an optimizer.

    Attributes:
      name: adam, or rmsprop, whose moving average of squared gradients starts at 1, as in TensorFlow 1.
      learning_rate: initial learning rate.
      learning_rate_decay: whether the learning rate decays linearly to 0 over the learner steps of the run.  Batches
        also hold the last timesteps of episodes, which are not environment steps, so with short episodes it may reach
        0 slightly before the run's last environment step.
      epsilon: added to the denominator of the update by Adam, and under its square root by RMSProp.
      rmsprop_decay: decay of RMSProp's moving average; Adam uses 0.9 and 0.999.
      max_gradient_norm: global norm to which gradients are clipped; None for no clipping.
    """

    name: Literal["rmsprop", "adam"] = "adam"
    learning_rate: PositiveFloat
    learning_rate_decay: bool = True
    epsilon: PositiveFloat
    rmsprop_decay: UnitInterval = 0.99
    max_gradient_norm: PositiveFloat | None
