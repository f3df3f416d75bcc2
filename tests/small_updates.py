"""Agents so small that one update of them is compared in float64, and the settings that they share."""

from collections.abc import Mapping
from typing import Any, NamedTuple

CLIPPED_TO = 0.05
"""Norm to which the gradients of small updates are clipped; all are longer."""

# With a large epsilon an optimizer's update shows how long a gradient was, which Adam's first one does not.
SIZES: dict[str, Any] = {"batch_size": 8, "network.hidden_sizes": (4,), "network.normalize_observations": True}
SMALL: dict[str, Any] = {**SIZES, "optimizer.epsilon": 1.0}
SAC_EPSILON = {f"{part}_optimizer.epsilon": 1.0 for part in ("critic", "actor", "temperature")}
SAC_RATES = {
    f"{part}_optimizer.learning_rate": rate for part, rate in (("actor", 0.1), ("critic", 0.2), ("temperature", 0.3))
}
RAW = {"normalize_rewards": False}
PLAIN = {**RAW, "optimizer.name": "rmsprop"}
CLIPPED: dict[str, Any] = {"optimizer.max_gradient_norm": CLIPPED_TO, "optimizer.learning_rate_decay": False}
LSTM = {"network.core": "lstm", "network.lstm_size": 3}
ONE_STEP = {"epochs": 1, "minibatches": 1}
SMALL_QUEUE: dict[str, Any] = {**SMALL, **CLIPPED, "unroll_length": 5}

SMALL_APEX: dict[str, Any] = {
    **SMALL,
    **CLIPPED,
    **RAW,
    "n_step": 3,
    "network.stream_size": 0,
    "optimizer.learning_rate": 1.0,
    "target_update_period": 1,
}
SMALL_TEAM: dict[str, Any] = {
    **SMALL,
    "network.normalize_observations": False,
    **CLIPPED,
    **RAW,
    "burn_in": 2,
    "trace_length": 6,
    "period": 3,
    "network.lstm_size": 3,
    "optimizer.learning_rate": 1.0,
    "target_update_period": 1,
}


def bonus(name: str) -> dict[str, Any]:
    """Settings of a small exploration bonus."""
    return {"bonus.name": name, "bonus.hidden_sizes": (4,), "bonus.features": 3, "bonus.learning_rate": 0.1}


class SmallUpdate(NamedTuple):
    """An agent so small that its update is compared in float64 on several devices, and by several learners."""

    settings: Mapping[str, Any]
    """Fields of the agent: batches of 8, and one gradient in an update, clipped to `CLIPPED_TO` where possible."""
    transitions: int
    """Number of transitions in an item of the batch."""
    continuous: bool = False
    """Whether actions are vectors, not integers."""
    images: bool = False
    """Whether observations are images, not vectors."""
    slow: bool = False
    """Whether other small updates have the same parts, so that it need not be compared in the fast tests."""


SMALL_DRQ: dict[str, Any] = {
    **SIZES,
    **SAC_EPSILON,
    **SAC_RATES,
    "network.normalize_observations": False,
    "network.filters": ((4, 3, 2), (4, 3, 2)),
    "network.image_features": 5,
    "frame_stack": 1,
}
