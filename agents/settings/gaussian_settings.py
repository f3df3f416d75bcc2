"""Settings of Gaussian policies."""

import dataclasses
from typing import Annotated, Any

from annotated_types import Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianPolicySettings:
    """Settings of a policy over actions that are, or contain, numbers.

    Attributes:
      initial_log_std: initial logarithm of the Gaussian policy's standard deviation, in units of half the range of an
        action.  It is kept between -10 and 2.
      std_from_observation: whether that standard deviation depends on the observation.
    """

    initial_log_std: Annotated[float, Interval(ge=-10, le=2)] = 0.0
    std_from_observation: bool = False

    @property
    def deviation(self) -> dict[str, Any]:
        """Both settings, as arguments of `networks.factory.policy_value_network`."""
        return {"initial_log_std": self.initial_log_std, "std_from_features": self.std_from_observation}
