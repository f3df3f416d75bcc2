"""Hyperparameters of A3C."""

import dataclasses

from ...settings.setting_types import PositiveInt
from .a2c_settings import AdvantageSettings


@dataclasses.dataclass(frozen=True)
class A3CSettings(AdvantageSettings):
    """Hyperparameters of A3C; an actor is one of the paper's workers, with a batch of environments.

    Attributes:
      waiting_gradients: gradients that may wait for the learner, at least 3; actors wait while there are as many.  More
        of them are older when they are applied.
    """

    waiting_gradients: PositiveInt = 3
