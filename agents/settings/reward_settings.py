"""Settings of the rewards that agents learn from."""

import dataclasses

from ...settings.setting_types import PositiveFloat, UnitInterval

LARGEST_REWARD = 10.0
"""Standard deviations of the return beyond which normalized rewards are clipped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardSettings:
    """Settings of the rewards that an agent learns from; its settings extend them.  Metrics show unchanged rewards.

    Attributes:
      reward_scale: factor of rewards, before they are clipped.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip], or to a range such as [-1, 5]; None disables
        clipping.
      normalize_rewards: whether rewards are divided by the running standard deviation of discounted returns and clipped
        to [-10, 10], before `reward_scale`.  Replay holds the environment's rewards, and every batch is normalized by
        the newest deviation.  Values are then those of normalized rewards, as are `value_min` and `value_max` of a
        distribution.
      normalization_discount: γ of those returns; None for that of the agent.  Baselines' `VecNormalize` has 0.99 by
        default, whatever the agent's.
    """

    reward_scale: PositiveFloat = 1.0
    reward_clip: PositiveFloat | tuple[float, float] | None = None
    normalize_rewards: bool = False
    normalization_discount: UnitInterval | None = None

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if isinstance(self.reward_clip, tuple) and not self.reward_clip[0] < self.reward_clip[1]:
            return f"reward_clip must be an increasing range, such as [-1, 5], not {list(self.reward_clip)}"
        if self.normalize_rewards and self.reward_clip is not None:
            return "rewards are either normalized or clipped: set normalize_rewards to false, or leave reward_clip out"
        if self.normalization_discount is not None and not self.normalize_rewards:
            return "normalization_discount has no effect without normalized rewards: set normalize_rewards to true"
        hindsight = getattr(getattr(self, "replay", None), "hindsight", None)
        if self.normalize_rewards and hindsight is not None and hindsight.goals:
            return (
                "rewards for the goals of replay.hindsight are not of the returns by which rewards are normalized: set "
                "normalize_rewards to false"
            )
        return ""
