"""Replay of n-step transitions (Ape-X, SAC)."""

import dataclasses
from typing import Any

import numpy as np

from ..errors import CallboardError
from ..specs import ACHIEVED, DESIRED, describe
from .sampled_replay import SampledReplay
from .servers.handle import ReplayHandle
from .stacking import is_frame
from .writing.hindsight_writer import HindsightWriter
from .writing.windows import WindowFormat, WindowWriter


@dataclasses.dataclass(frozen=True)
class TransitionReplay(SampledReplay):
    """A replay of windows of up to `n_step` transitions, one from every timestep that starts a valid transition.

    Attributes:
      n_step: transitions in a window (n); fewer at the end of an episode.
    """

    n_step: int = 1

    @property
    def window(self) -> int:
        return self.n_step

    def check(self) -> None:
        super().check()
        if self.relabels_goals:
            self._check_goals()

    def format_of(self, together: int) -> WindowFormat:
        return WindowFormat(
            self.layout,
            self.n_step,
            self.stack,
            returns_discount=self.returns_discount,
            together=together,
            goals=self.settings.hindsight.goals,
        )

    def writer(self, replay: ReplayHandle, actor: int) -> WindowWriter | HindsightWriter:
        layout, item_format, table = self.layout, self.format_of(self.together), self.table_of(actor)
        shard = layout.shard_of(actor)
        writer = WindowWriter(replay, item_format, table, self.first_priority, shard, self.priority_exponent)
        if not self.relabels_goals:
            return writer
        rewards, seed = layout.goal_rewards, (layout.seed, actor)
        if rewards is None:
            raise CallboardError(
                "with agent.replay.hindsight a writer needs the environment's compute_reward: give the layout its "
                "goal_rewards"
            )
        return HindsightWriter(writer, self.n_step, self.settings.hindsight, rewards, seed, layout.envs_per_actor)

    def _check_goals(self) -> None:
        """Raises `CallboardError` if observations have no goals that can take each other's place."""
        observation = self.layout.spec.observation
        if not isinstance(observation, dict) or not {ACHIEVED, DESIRED} <= observation.keys():
            raise CallboardError(
                f"agent.replay.hindsight is for environments whose observations have the parts {ACHIEVED} and "
                f"{DESIRED}, and this is {describe(observation)}: set agent.replay.hindsight.goals to 0"
            )
        achieved, desired = observation[ACHIEVED], observation[DESIRED]
        arrays = not any(isinstance(goal, dict | tuple) for goal in (achieved, desired))
        if not arrays or not _are_alike(achieved, desired):
            raise CallboardError(
                f"an achieved goal becomes a desired one, but {ACHIEVED} is {_goal_text(achieved)} and {DESIRED} is "
                f"{_goal_text(desired)}: make both one array of one kind, or set agent.replay.hindsight.goals to 0"
            )
        if self.stack > 1 and is_frame(achieved):
            raise CallboardError(
                "goals that are images are not stacked: set agent.frame_stack to 1, or agent.replay.hindsight.goals "
                "to 0"
            )


def _are_alike(achieved: Any, desired: Any) -> bool:
    """Returns whether two arrays have the same values; numbers may have other bounds."""
    one, other = (np.array(getattr(spec, "num_values", None)) for spec in (achieved, desired))
    return (achieved.shape, achieved.dtype) == (desired.shape, desired.dtype) and np.array_equal(one, other)


def _goal_text(spec: Any) -> str:
    values = getattr(spec, "num_values", None)
    return describe(spec) if values is None else f"a choice of {np.array(values).tolist()}"
