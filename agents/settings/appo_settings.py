"""Hyperparameters of APPO."""

import dataclasses

from ..schedules import ScheduledPositiveFloat
from .impala_settings import ImpalaSettings


@dataclasses.dataclass(frozen=True)
class AppoSettings(ImpalaSettings):
    """Hyperparameters of APPO: IMPALA's, and the range of the clipped ratio.

    docs/defaults.md compares the defaults with those of other implementations.

    Attributes:
      clip: ε of the ratio of the policy to the one that acted, beyond which an advantage has no gradient; or a
        schedule of it.
      clip_policy_gradient_rho: not used; the ratio in the policy's loss is limited by `clip`.
    """

    clip: ScheduledPositiveFloat = 0.2
