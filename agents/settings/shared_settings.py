"""Settings that several agents share: the classes of their settings extend these."""

import dataclasses
from typing import Annotated, Any

import numpy as np
import tree
from annotated_types import Interval
from dm_env import specs as dm_specs

from ...errors import CallboardError
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval
from ...specs import EnvironmentSpec
from ..schedules import ScheduledUnitInterval


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationSettings:
    """Settings for the observations that the network receives; agents' settings extend them.

    Attributes:
      frame_stack: number of most recent images that the network sees; replay stores each image once.
    """

    frame_stack: PositiveInt = 1


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedActionSettings:
    """How an environment's actions get finite bounds, which agents' settings extend.

    Attributes:
      action_limit: bound, in both directions, of numbers of an action that the environment leaves unbounded; None
        refuses such environments.
    """

    action_limit: PositiveFloat | None = None

    def limited(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec of an environment with `action_limit` in place of infinite bounds of its action.

        Raises:
          CallboardError: a finite bound lies beyond the limit, or nothing in the action is a number.
        """
        limit = self.action_limit
        if limit is None:
            return spec

        def bounded(leaf: Any) -> Any:
            if not isinstance(leaf, dm_specs.BoundedArray) or leaf.dtype.kind != "f":
                return leaf
            low = np.where(np.isneginf(leaf.minimum), -limit, leaf.minimum).astype(leaf.dtype)
            high = np.where(np.isposinf(leaf.maximum), limit, leaf.maximum).astype(leaf.dtype)
            if (low > high).any():
                raise CallboardError(
                    f"agent.action_limit {limit:g} lies outside of the finite bounds of the environment's action: make "
                    "it larger"
                )
            return dm_specs.BoundedArray(leaf.shape, leaf.dtype, low, high, leaf.name)

        if all(leaf.dtype.kind != "f" for leaf in tree.flatten(spec.action)):
            raise CallboardError("agent.action_limit is for numbers, and these actions are choices: leave it out")
        return spec._replace(action=tree.map_structure(bounded, spec.action))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplorationSettings:
    """Rates of random actions of agents that learn action values, which extend this class.

    Attributes:
      epsilon: exploration rate of the first environment, or a schedule of it, which actors follow with the weights that
        they fetch.  A single environment explores at this rate and needs a lower one.
      epsilon_alpha: the last environment explores at rate epsilon^(1 + epsilon_alpha), the others in between.
      evaluation_epsilon: rate of random actions in evaluation; 0.001 or 0.01 is usual on Atari, where a policy without
        random actions may repeat an action without effect until the time limit.
    """

    epsilon: ScheduledUnitInterval = 0.4
    epsilon_alpha: NonNegativeFloat = 7.0
    evaluation_epsilon: UnitInterval = 0.0


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedReplaySettings(ReplaySettings):
    """Settings of prioritized replay.

    Attributes:
      priority_exponent: α, items are sampled in proportion to priority^α; 0 samples uniformly.
      importance_exponent: β, how far importance weights correct the bias of prioritized sampling, or a schedule of it,
        such as from 0.4 to 1 (Schaul et al. 2016).
    """

    priority_exponent: UnitInterval
    importance_exponent: ScheduledUnitInterval


@dataclasses.dataclass(frozen=True)
class IterationSettings(ObservationSettings, RewardSettings):
    """Settings of iterations over the newest data; agents' settings extend them.

    Attributes:
      unroll_length: transitions in a sequence (T).
      batch_size: sequences in an iteration, over all replicas; a multiple of the number of environments of all actors.
        With several agents in an environment, as many of each agent that the policy plays for.
      epochs: passes over the batch per iteration.
      minibatches: number of minibatches in an epoch, each with a gradient step.
      accumulate: minibatches in a gradient step, whose gradients are averaged, as if they were one larger minibatch
        that did not fit into memory.
      max_policy_lag: maximum age, in learner steps (iterations), of the weights that acted when learning from their
        data begins.  With 0 actors and learner alternate, as in the papers; higher values trade staleness for speed.
      discount: γ.
    """

    unroll_length: PositiveInt = 64
    batch_size: PositiveInt = 32
    epochs: PositiveInt = 10
    minibatches: PositiveInt = 32
    accumulate: PositiveInt = 1
    max_policy_lag: NonNegativeInt = 0
    discount: UnitInterval = 0.99

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.minibatches % self.accumulate:
            return f"minibatches must be a multiple of accumulate ({self.accumulate}), not {self.minibatches}"
        return super().problem
