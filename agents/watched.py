"""Rules by which a run warns, while an agent learns, that a setting does not fit."""

import enum
from typing import NamedTuple


class Watched(NamedTuple):
    """A metric of the learner that is too large."""

    metric: str
    largest: float
    """The run warns where the metric stays above it."""
    meaning: str
    """The warning: the fault, and a remedy to try."""


class Gradient(NamedTuple):
    """The norm of gradients, which an optimizer clips."""

    optimizer: str = "optimizer"
    """The setting; the metric is `gradient_norm` of `optimizer`, and `actor_gradient_norm` of `actor_optimizer`."""


class Returns(NamedTuple):
    """The returns of episodes and evaluations, which fall again where learning is unstable."""

    optimizer: str = "optimizer"
    """The setting whose learning rate is then too high."""


class Quantity(enum.Enum):
    """Rules that depend on settings that agents share."""

    ENTROPY = "the entropy of discrete actions, which `entropy_cost` keeps up"
    TEMPERATURE = "the temperature, at first `temperature`, which the agent adapts to a target of the entropy"
    VALUES = "the values of rewards as `RewardSettings` have them, with `discount`"
    LAG = "the learner steps by which a policy is behind, which a batch of `batch_size` sequences was played with"


Watch = Watched | Gradient | Returns | Quantity
