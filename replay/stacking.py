"""Frame stacking: single frames are stored, and stacked when they are read.

A stack holds the k newest frames along the channel axis, the oldest first.  At the start of an episode, its first frame
is repeated in place of the missing ones (as in Gymnasium; DQN uses zeros).  A stack never crosses a reset.  Only frames
(`is_frame`) are stacked.
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ..data import Nest, Timestep
from ..errors import CallboardError
from ..specs import EnvironmentSpec, MultiDiscreteArray, describe, has_channels_first


def is_frame(spec: Any) -> bool:
    """Returns whether a leaf of an observation is a frame: height, width and channels."""
    return len(spec.shape) == 3


def check_stack(spec: EnvironmentSpec, stack: int) -> None:
    """Raises `CallboardError` if the environment's observations cannot be stacked."""
    frames = [leaf.shape for leaf in tree.flatten(spec.observation) if is_frame(leaf)]
    if stack < 1:
        raise CallboardError(f"agent.frame_stack must be at least 1, not {stack}")
    if stack > 1 and not frames:
        raise CallboardError(
            f"only images are stacked, and the observation is {describe(spec.observation)}: set agent.frame_stack to 1"
        )
    for shape in frames:
        if stack > 1 and has_channels_first(shape) is not False:
            raise CallboardError(
                f"agent.frame_stack needs images of height x width x channels, and the first axis of an observation "
                f"{tuple(shape)} may be its channels: move them last, or set agent.frame_stack to 1"
            )


def stacked_spec(spec: EnvironmentSpec, stack: int) -> EnvironmentSpec:
    """Returns the environment's spec as seen by the network, with `stack` times the channels in every frame."""

    def leaf_spec(leaf: dm_specs.Array) -> dm_specs.Array:
        if not is_frame(leaf):
            return leaf
        shape = (*leaf.shape[:2], leaf.shape[2] * stack)
        if isinstance(leaf, MultiDiscreteArray):
            return MultiDiscreteArray(np.tile(leaf.num_values, stack), leaf.dtype, leaf.name)
        if not isinstance(leaf, dm_specs.BoundedArray):
            return dm_specs.Array(shape, leaf.dtype, leaf.name)
        low, high = (
            np.tile(bound, stack) if np.ndim(bound) and np.shape(bound)[-1] == leaf.shape[2] else bound
            for bound in (leaf.minimum, leaf.maximum)
        )
        return dm_specs.BoundedArray(shape, leaf.dtype, low, high, leaf.name)

    return spec._replace(observation=tree.map_structure(leaf_spec, spec.observation))


def initial_frames(spec: EnvironmentSpec, stack: int, batch_size: int) -> Nest:
    """Returns the initial state of frame stacking: `stack - 1` frames of each kind, all zeros."""
    if stack == 1:
        return ()
    frames = [leaf for leaf in tree.flatten(spec.observation) if is_frame(leaf)]
    return tuple(
        tf.zeros((batch_size, *frame.shape[:2], frame.shape[2] * (stack - 1)), frame.dtype) for frame in frames
    )


def push_frames(timestep: Timestep, frames: Nest, stack: int) -> tuple[Nest, Nest]:
    """Stacks a timestep's frames with the previous ones.

    Args:
      timestep: leaves `[B, ...]`.
      frames: the frames returned by `initial_frames` or by the previous call.
      stack: number of frames in a stack (k).

    Returns:
      The observation as seen by the network, and the frames for the next call.
    """
    if stack == 1:
        return timestep.observation, frames
    remembered = list(frames)
    after = []

    def push(leaf: Any) -> Any:
        if len(leaf.shape) != 4:
            return leaf
        before = remembered.pop(0)
        first = tf.reshape(timestep.first, (-1, 1, 1, 1))
        before = tf.where(first, tf.tile(leaf, (1, 1, 1, stack - 1)), before)
        stacked = tf.concat([before, leaf], axis=-1)
        after.append(stacked[..., leaf.shape[-1] :])
        return stacked

    observation = tree.map_structure(push, timestep.observation)
    return observation, tuple(after)


def stack_rows(frames: tf.Tensor, age: tf.Tensor, stack: int) -> tf.Tensor:
    """Stacks the consecutive frames of items.

    Args:
      frames: `[T + stack - 1, B, H, W, C]`; those before the first row may belong to another episode.
      age: int32 `[T, B]`, timesteps since the start of a row's episode.
      stack: number of frames in a stack (k).

    Returns:
      `[T, B, H, W, stack * C]`.
    """
    if stack == 1:
        return frames
    rows, batch = age.shape
    row, env = tf.range(rows)[:, tf.newaxis], tf.broadcast_to(tf.range(batch), (rows, batch))

    def lagged(lag: int) -> tf.Tensor:
        source = row + (stack - 1) - tf.minimum(lag, age)
        return tf.gather_nd(frames, tf.stack([source, env], axis=-1))

    return tf.concat([lagged(lag) for lag in reversed(range(stack))], axis=-1)
