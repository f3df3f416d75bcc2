"""Settings of replay that several agents share, and the check that they can work."""

import dataclasses
import math
from typing import Annotated, Literal

from annotated_types import Interval

from ..data import Layout
from ..errors import CallboardError
from .setting_types import PositiveFloat, PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class HindsightSettings:
    """Settings of hindsight experience replay (HER, Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495).

    Attributes:
      goals: k, goals achieved in the same episode with which each window of transitions is learned from besides the
        goal that was played for; 0 for none.  Rewards are computed anew.
      strategy: which goals these are: random ones that were achieved later (future), the one achieved at the end
        (final), or random ones of the whole episode (episode).
      horizon: timesteps after which an episode that has not ended is treated as if it ended there, for the choice of
        goals.  Actors hold timesteps back for as long as the longest episode, or as this.
    """

    goals: Annotated[int, Interval(ge=0, le=100)] = 0
    strategy: Literal["future", "final", "episode"] = "future"
    horizon: PositiveInt = 1000

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        changed = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]
        return (
            "" if self.goals or not changed else f"{changed[0]} has no effect without goals: set goals, or leave it out"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Size of replay, and how often it is sampled.  An item is a transition, a window or a sequence, by agent.

    Attributes:
      size: maximum number of items in replay, over all shards; the oldest are evicted.
      min_size: items in replay before learning begins.
      samples_per_insert: average number of times that an item is learned from; actors wait for the learner, or vice
        versa.
      error_buffer: samples by which learning may run ahead of or behind samples_per_insert, for actors and a learner
        that wait less for each other.  With None learning never runs ahead, and makes all steps that samples_per_insert
        promises before the run ends; meanwhile it may fall behind by a tenth of the samples that min_size inserts
        allow, but at least twice what a batch and a timestep require.
      sampled_together: samples of a batch that are of the same timestep, in different environments of an actor; they
        are stored and read as one, which costs less.  Each is sampled with the same probability as by itself.  1 for
        none; None for as many as fit, unless they are large.
      demonstration_share: share of each batch that is of recorded episodes, which then have a table of their own beside
        that of what is played; for runs with actors and a data set.  Samples are then taken one by one.  0 mixes both
        in one table.
      demonstration_items: number of items of recorded episodes in that table; None for all.
      hindsight: see `HindsightSettings`, for environments with goals; a window with further goals is still one item.
    """

    size: PositiveInt
    min_size: PositiveInt
    samples_per_insert: PositiveFloat
    error_buffer: PositiveFloat | None = None
    sampled_together: PositiveInt | None = None
    demonstration_share: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    demonstration_items: PositiveInt | None = None
    hindsight: HindsightSettings = HindsightSettings()

    def check(self, layout: Layout, batch_size: int, updates_per_call: int = 1, n_step: int = 1) -> None:
        """Checks that the settings can work.

        Args:
          layout: the run's layout.
          batch_size: items in a global batch.
          updates_per_call: batches that are sampled at once.
          n_step: transitions of a window, which is written after the last of them.

        Raises:
          CallboardError: the settings cannot work; the message names one of the agent's fields `batch_size`,
            `replay.size`, `replay.min_size`, `replay.samples_per_insert` and `replay.error_buffer`.
        """
        if batch_size < 1 or batch_size % layout.replicas:
            raise CallboardError(
                f"a batch of {batch_size} items cannot be shared by {layout.replicas} learner devices: "
                f"make agent.batch_size a multiple of {layout.replicas}"
            )
        if self.size < batch_size * layout.shards:
            raise CallboardError(
                f"a replay of {self.size} items in {layout.shards} shard(s) is smaller than a batch of {batch_size}: "
                f"set agent.replay.size to at least {batch_size * layout.shards}"
            )
        if not layout.shards <= self.min_size <= self.size:
            raise CallboardError(
                f"agent.replay.min_size must lie between {layout.shards} and agent.replay.size ({self.size}), "
                f"not be {self.min_size}"
            )
        envs = layout.actors * layout.envs_per_actor
        most = max(0, layout.max_timesteps - envs * (n_step - 1))
        if self.min_size >= most:
            windows = (
                f", which make {most} windows of {n_step} transitions in {envs // layout.agents_per_env} environments"
                if n_step > 1
                else ""
            )
            raise CallboardError(
                f"learning would never begin: agent.replay.min_size is {self.min_size}, and the run ends after "
                f"max_steps = {layout.max_steps} environment steps{windows}; raise max_steps, or lower "
                f"agent.replay.min_size{' or agent.n_step' if n_step > 1 else ''}"
            )
        if not (self.samples_per_insert > 0 and math.isfinite(self.samples_per_insert)):
            raise CallboardError(f"agent.replay.samples_per_insert must be more than 0, not {self.samples_per_insert}")
        sampled_at_once = batch_size * updates_per_call
        if not self.allows_at_once(layout, sampled_at_once):
            needed = self._needed_buffer(layout, sampled_at_once)
            what = "a batch of" if updates_per_call == 1 else f"{updates_per_call} batches, together"
            raise CallboardError(
                f"an agent.replay.error_buffer of {self.error_buffer:g} cannot keep {self.samples_per_insert:g} "
                f"samples per insert: actors and learner would wait for each other over {what} {sampled_at_once}; set "
                f"it to at least {math.ceil(needed)}, or leave it out"
            )

    def allows_at_once(self, layout: Layout, sampled_at_once: int) -> bool:
        """Returns whether the error buffer, if it is set, is large enough for so many samples at once."""
        # Also rejects NaN.
        return self.error_buffer is None or self.error_buffer >= self._needed_buffer(layout, sampled_at_once)

    def learner_steps(self, items: float, batch_size: int) -> int:
        """Returns the number of learner steps of a run, for settings that decay until its end.

        Args:
          items: number of items that the run inserts; learning begins after the first `min_size`.
          batch_size: items that a learner step learns from.
        """
        # Optimizers count in 32 bits.
        return int(min(2**31 - 1, max(0, items - self.min_size) * self.samples_per_insert / batch_size))

    def buffer(self, layout: Layout, sampled_at_once: int) -> float:
        """Returns the error buffer of one shard: `error_buffer`, or its default if that is None.

        Args:
          layout: the run's layout.
          sampled_at_once: items of all batches that are learned from in a call.
        """
        if self.error_buffer is not None:
            return self.error_buffer
        samples = self.samples_per_insert * self.min_size / layout.shards
        return max(0.1 * samples, 2 * self._needed_buffer(layout, sampled_at_once))

    def _needed_buffer(self, layout: Layout, sampled_at_once: int) -> float:
        # All environments of an actor may also insert at once.
        return sampled_at_once + self.samples_per_insert * layout.envs_per_actor
