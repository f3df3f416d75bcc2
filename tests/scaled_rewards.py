"""Environments of Gymnasium with rewards times a factor."""

from typing import Any

import gymnasium


def make(name: str, scale: float) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(gymnasium.make(name), lambda reward: scale * float(reward))
