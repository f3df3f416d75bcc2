"""Frame stacking: single frames are stored, and stacked when they are read.

A stack holds the k newest frames along the channel axis, the oldest first.  At the start of an episode, its first frame
is repeated in place of the missing ones (as in Gymnasium; DQN uses zeros).  A stack never crosses a reset.  Only frames
(`is_frame`) are stacked.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ..data import Nest, Record, Sample, Timestep
from ..errors import CallboardError
from ..specs import EnvironmentSpec, MultiDiscreteArray, describe, has_channels_first


class Frames(NamedTuple):
    """The part of a policy's state that holds frames; replay does not store it, since it stores every frame."""

    newest: dict[str, Any]
    """`[B, height, width, channels * (stack - 1)]` for each kind of frame, by its path in the observation: the newest
    ones, the oldest first.  In place of those from before the episode are copies of its first frame."""


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


def initial_frames(observation: Nest, stack: int, batch_size: int) -> Nest:
    """Returns the initial state of frame stacking: `Frames` that are all zeros, or `()` if frames are not stacked.

    Args:
      observation: nest of the specs of observations as the network sees them, see `stacked_spec`.
      stack: number of frames in a stack (k).
      batch_size: number of environments.
    """
    if stack == 1:
        return ()

    def zeros(frame: Any) -> tf.Tensor:
        height, width, channels = frame.shape
        return tf.zeros((batch_size, height, width, channels // stack * (stack - 1)), frame.dtype)

    leaves = tree.flatten_with_path(observation)
    return Frames({path_text(path): zeros(leaf) for path, leaf in leaves if is_frame(leaf)})


def path_text(path: Sequence[Any]) -> str:
    """Returns the name of a leaf of an observation in `Frames`."""
    return "/".join(map(str, path))


def push_frames(timestep: Timestep | Record, frames: Nest, stack: int) -> tuple[Nest, Nest]:
    """Stacks a timestep's frames with the previous ones.

    Args:
      timestep: the timestep, or its record; leaves `[B, ...]`.
      frames: the frames returned by `initial_frames` or by the previous call.
      stack: number of frames in a stack (k).

    Returns:
      The observation as seen by the network, and the frames for the next call.
    """
    if stack == 1:
        return timestep.observation, frames
    # A kind that only the learner needs may be missing.
    after = dict(frames.newest)

    def push(path: Sequence[Any], leaf: Any) -> Any:
        if len(leaf.shape) != 4:
            return leaf
        before = frames.newest[path_text(path)]
        first = tf.reshape(timestep.first, (-1, 1, 1, 1))
        before = tf.where(first, tf.tile(leaf, (1, 1, 1, stack - 1)), before)
        stacked = tf.concat([before, leaf], axis=-1)
        after[path_text(path)] = stacked[..., leaf.shape[-1] :]
        return stacked

    observation = tree.map_structure_with_path(push, timestep.observation)
    return observation, Frames(after)


def without_frames(state: Nest) -> Nest:
    """Returns the part of a policy's state that replay stores: all but its `Frames`."""
    return tree.traverse(lambda part: () if isinstance(part, Frames) else None, state)


def single_frames(state: Nest, stack: int, paths: Sequence[str]) -> list[Sequence[np.ndarray]]:
    """Returns the frames that a policy carries, one timestep after the other.

    Args:
      state: the policy's state before a timestep, leaves `[B, ...]`.
      stack: number of frames in a stack (k), at least 2.
      paths: the kinds of frames.

    Returns:
      For each of the k - 1 timesteps before it, the oldest first, a frame `[B, height, width, channels]` of each kind.
    """
    newest = _frames_of(state).newest
    kinds = (np.split(np.asarray(newest[path]), stack - 1, axis=-1) for path in paths)
    return list(zip(*kinds, strict=True))


def stacked_sample(sample: Sample, stack: int) -> Sample:
    """Returns a sample of sequences with stacks in place of single frames, and with a state without frames.

    Args:
      sample: its observations hold single frames, and its state the frames before the first one.
      stack: number of frames in a stack (k).
    """
    if stack == 1:
        return sample
    frames = _frames_of(sample.state)
    rows = []
    for t in range(sample.record.first.shape[0]):
        observation = tree.map_structure(lambda leaf, t=t: leaf[t], sample.record.observation)
        stacks, frames = push_frames(
            sample.record._replace(observation=observation, first=sample.record.first[t]), frames, stack
        )
        rows.append(stacks)
    record = sample.record._replace(observation=tree.map_structure(lambda *leaves: tf.stack(leaves), *rows))
    return sample._replace(record=record, state=without_frames(sample.state))


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


def _frames_of(state: Nest) -> Frames:
    """Returns the frames in a policy's state."""
    found: list[Frames] = []

    def find(part: Any) -> None:
        if isinstance(part, Frames):
            found.append(part)

    tree.traverse(find, state)
    (frames,) = found
    return frames
