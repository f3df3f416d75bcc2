"""Settings of the critics of SAC and TD3: how many there are, and what targets and the policy take of them."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ..settings.setting_types import LayerSize, NonNegativeInt, PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """Settings of the critics.  Those of an ensemble are computed together, in one matrix product for a layer of all.

    Attributes:
      number: critics.
      minimum_of: critics of whose values a target takes the lowest, sampled for each update (REDQ, Chen et al. 2021);
        None for all.  The policy learns from the mean of all critics if this is less than `number`, if there is
        dropout, or if there are quantiles; else SAC's learns from the lowest value, and TD3's from the first critic.
      quantiles: quantiles of the return that each critic outputs, whose mean is its value (TQC, Kuznetsov et al.
        2020); None for a value alone.
      dropped: highest quantiles that targets leave out, for each critic, of all critics' quantiles together.
      dropout: share of the units of each hidden layer that is zero, in targets too (DroQ, Hiraoka et al. 2022).
      layer_norm: whether the critics are normalized as by `network.layer_norm`, which also holds for the policy.
      hidden_sizes: hidden layers of each critic; None for those of `network`.
    """

    number: PositiveInt = 2
    minimum_of: PositiveInt | None = None
    quantiles: PositiveInt | None = None
    dropped: NonNegativeInt = 0
    dropout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    layer_norm: bool = False
    hidden_sizes: tuple[LayerSize, ...] | None = None

    @property
    def averaged(self) -> bool:
        """Whether the policy learns from the mean of all critics."""
        return self.quantiles is not None or self.dropout > 0 or self.minimum_of not in (None, self.number)

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.minimum_of is not None and self.minimum_of > self.number:
            return f"minimum_of is {self.minimum_of}, and there are {self.number} critics: make number at least that"
        if self.quantiles is None:
            return "dropped is a number of quantiles: set quantiles, or leave it out" if self.dropped else ""
        if self.minimum_of is not None:
            return "targets take the quantiles of all critics: leave minimum_of out, and set dropped"
        if self.dropped >= self.quantiles:
            return f"dropped must be less than the {self.quantiles} quantiles of a critic, not {self.dropped}"
        return ""
