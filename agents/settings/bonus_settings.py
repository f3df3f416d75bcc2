"""Settings of exploration bonuses, which several agents share."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Interval

from ...settings.setting_types import LayerSize, PositiveFloat, PositiveInt, UnitInterval

_FORMER = {"learning_rate": 3e-4}
"""Defaults of earlier versions, which the settings of their runs name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BonusSettings:
    """Settings of an exploration bonus: a reward for transitions into observations that are new to the agent.

    Attributes:
      name: none; rnd, the error in predicting what a fixed random network computes from the next observation (random
        network distillation, Burda et al. 2018); or icm, the error in predicting features of the next observation, from
        which a network tells the action (intrinsic curiosity module, Pathak et al. 2017).
      weight: factor of the bonus, once it is divided by the running deviation of discounted sums of bonuses.
      learning_rate: learning rate of the bonus's networks, which Adam trains; it does not decay.  A learner that sees
        each transition a hundred times learns slowly what is no longer new, so that its values can follow the bonus.
      hidden_sizes: hidden layers of those networks.  Those that see images have a torso below, as `network` says.
      features: numbers that are predicted.
      forward_weight: weight of the loss of the prediction with icm, β; that of the network that tells the action has
        1 - β.
    """

    name: Literal["none", "rnd", "icm"] = "none"
    weight: PositiveFloat = 0.5
    learning_rate: PositiveFloat = 1e-5
    hidden_sizes: tuple[LayerSize, ...] = (128,)
    features: PositiveInt = 64
    forward_weight: Annotated[float, Interval(gt=0, lt=1)] = 0.2

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        changed = [
            name for name, (value, default) in values.items() if value not in (default, _FORMER.get(name, default))
        ]
        if self.name == "none" and changed:
            return f"bonus.{changed[0]} has no effect without a bonus: set bonus.name to rnd or icm, or leave it out"
        if self.name == "rnd" and "forward_weight" in changed:
            return "bonus.forward_weight is for icm: leave it out, or set bonus.name to icm"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyBonusSettings(BonusSettings):
    """Settings of the bonus of an agent with a policy gradient, which learns values of the bonus apart.

    Attributes:
      learning_rate: see `BonusSettings`.
      discount: γ of bonuses, below 1.  Their sums do not end with an episode.
    """

    learning_rate: PositiveFloat = 3e-4
    discount: UnitInterval = 0.99

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.discount == 1:
            return "bonus.discount must be below 1: sums of bonuses do not end with an episode"
        return super().problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyBonusSettings(BonusSettings):
    """Settings of the bonus of an agent that replays, which adds it to rewards.

    Attributes:
      spread: whether each environment has a weight of its own, from `weight` of the first to 0 of the last, as in Never
        Give Up (Badia et al. 2020).  The network sees the weight, and has 0 in evaluations and when it is exported.
    """

    spread: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardBonusSettings:
    """The setting of agents that add a bonus to rewards, which extend this class.

    Attributes:
      bonus: see `OffPolicyBonusSettings`; it is added to every reward, and ends with the episode.
    """

    bonus: OffPolicyBonusSettings = OffPolicyBonusSettings()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageBonusSettings:
    """The setting of agents with a policy gradient, which extend this class.

    Attributes:
      bonus: see `OnPolicyBonusSettings`; its advantages are added to those of the rewards.
    """

    bonus: OnPolicyBonusSettings = OnPolicyBonusSettings()
