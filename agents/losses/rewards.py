"""Rewards as agents learn from them."""

from typing import Any

import numpy as np
import tensorflow as tf


def learning_reward(reward: Any, scale: float = 1.0, clip: float | tuple[float, float] | None = None) -> Any:
    """Returns rewards times `scale`, then clipped.

    Args:
      reward: rewards of any shape, an array or a tensor.
      scale: factor.
      clip: largest absolute value, or smallest and largest value; None for no clipping.

    Returns:
      An array or a tensor, as `reward` is one.
    """
    if scale != 1.0:
        reward = reward * scale
    if clip is None:
        return reward
    low, high = clip if isinstance(clip, tuple) else (-clip, clip)
    return tf.clip_by_value(reward, low, high) if tf.is_tensor(reward) else np.clip(reward, low, high)
