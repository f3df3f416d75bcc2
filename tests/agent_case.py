"""What the table of agents says of one of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from small_updates import SmallUpdate


class AgentCase(NamedTuple):
    name: str
    """The agent's name in the registry."""
    recipe: str
    """Recipe that the tests train with."""
    goal: float
    """Return that a run of the recipe must still reach after a node has died."""
    default_tasks: tuple[tuple[str, float, int], ...]
    """Environment, return and environment steps that the agent's defaults must do with."""
    short: Mapping[str, Any]
    """Fields of the agent with which items are made within episodes of 9 steps."""
    changed_replay: Mapping[str, str]
    """Options with which a run cannot be resumed with its replay, and how the error begins (a regular expression)."""
    small_updates: Mapping[str, SmallUpdate]
    """Small agents, by names of their own."""
    first_loss: str = "loss"
    """The loss that the error names if a reward is not finite."""
    learning_rates: tuple[str, ...] = ("optimizer.learning_rate",)
    """Settings of the agent that are learning rates."""
    evaluate_every: int = 5000
    """Environment steps between evaluations, such that the goal is not reached before a node dies."""
    reads_queue: bool = False
    """Whether items are learned from once and in order, so that inline runs are reproducible."""
    prioritized: bool = False
    """Whether the learner returns priorities."""
    updates_per_call: bool = True
    """Whether the agent can make several updates in a call."""
    rounded: frozenset[str] = frozenset()
    """Parts of a record that an LSTM computes, which differ in their last bits with central inference."""
    continuous: bool = False
    """Whether the recipe's actions are floats, which depend on the size of the policy's batch in their last bits."""
    several_learners: bool = True
    """Whether several learners can share a batch."""
    limited_env: str | None = None
    """An environment with the option `max_episode_steps`, where the recipe's has none."""
