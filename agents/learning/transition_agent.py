"""Shared parts of agents that learn from transitions of a uniform replay: SAC, TD3, D4PG, DMPO."""

from typing import Any, ClassVar

from ...data import Layout
from ...replay import TransitionReplay
from ..agent import Agent
from .reward_normalizer import returns_discount
from .updates_at_once import updates_at_once


class TransitionAgent(Agent):
    """An agent with `ReplaySettings`, whose batches are transitions that are sampled uniformly.

    Subclasses are dataclasses with the fields that `make_replay` reads.
    """

    batch_size: Any
    updates_per_call: Any
    accumulate: Any
    frame_stack: Any
    replay: Any
    n_step: ClassVar[Any] = 1
    """Steps of the returns; an agent with a setting of that name has that."""
    reset_every: ClassVar[Any] = None
    """Learner steps after which networks begin anew, likewise."""

    def updates_at_once(self, layout: Layout) -> int:
        """Returns the number of learner steps per call, in a run of this layout."""
        return self.updates_per_call or updates_at_once(
            layout, self.replay, self.batch_size, self.accumulate, self.frame_stack, most=8, period=self.reset_every
        )

    def make_replay(self, layout: Layout) -> TransitionReplay:
        return TransitionReplay(
            layout,
            self.replay,
            self.batch_size,
            self.updates_at_once(layout) * self.accumulate,
            stack=self.frame_stack,
            n_step=self.n_step,
            returns_discount=returns_discount(self),
        )

    def learner_steps(self, layout: Layout) -> int:
        """Returns the updates of a run up to its limit, over which learning rates decay."""
        return self.replay.learner_steps(layout.max_timesteps, self.batch_size * self.accumulate)
