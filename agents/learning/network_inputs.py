"""Inputs of a network beside the newest observation, in acting and in learning: earlier frames and actions.

With `frame_stack` the network sees stacks of the newest frames.  With `previous_inputs` it also takes the previous
action and its reward.  A policy carries both in its recurrent state.
"""

from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ...data import Nest, Record, Timestep
from ...networks.network import Inputs
from ...replay import initial_frames, push_frames


class Carried(NamedTuple):
    """Recurrent state of a policy whose network takes more than the newest observation.

    The previous reward is part of the timestep.
    """

    core: Nest
    """State of the network's core, leaves `[B, ...]`."""
    previous_action: Nest
    """The action that led to the observation, leaves `[B, ...]`; `()` if the network does not take it."""
    frames: Nest
    """`replay.Frames` to stack with those of the observation; `()` if frames are not stacked, and in replay."""


class ActingNetwork:
    """A network that acts: it steps with its inputs, and carries what later inputs need.

    The state is the network's own if it takes the newest observation only, and `Carried` otherwise.

    Args:
      network: a `networks.network.Network` for stacks of frames.
      frame_stack: number of frames in a stack.
    """

    def __init__(self, network: Any, frame_stack: int = 1):
        self._network = network
        self._frame_stack = frame_stack
        self._previous_inputs = getattr(network, "previous_inputs", False)

    def initial_state(self, batch_size: int) -> Nest:
        """Returns the state before the first timestep, leaves `[batch_size, ...]`."""
        core = self._network.initial_state(batch_size)
        if self._frame_stack == 1 and not self._previous_inputs:
            return core

        def zeros(spec: Any) -> tf.Tensor:
            return tf.zeros((batch_size, *spec.shape), spec.dtype)

        return Carried(
            core,
            previous_action=tree.map_structure(zeros, self._network.spec.action) if self._previous_inputs else (),
            frames=()
            if self._frame_stack == 1
            else initial_frames(self._network.spec.observation, self._frame_stack, batch_size),
        )

    def step(self, timestep: Timestep, state: Nest, bonus_weight: Any = ()) -> tuple[Any, Nest]:
        """Returns the network's outputs for a timestep, and the state to give to `carry`.

        Args:
          timestep: leaves `[B, ...]`.
          state: leaves `[B, ...]`.
          bonus_weight: see `Inputs`.
        """
        if not isinstance(state, Carried):
            inputs = Inputs(timestep.observation, bonus_weight=bonus_weight)
            return self._network.step(inputs, state, timestep.first)
        observation, frames = push_frames(timestep, state.frames, self._frame_stack)
        inputs = Inputs(observation, bonus_weight=bonus_weight)
        if self._previous_inputs:
            inputs = inputs._replace(previous_action=state.previous_action, previous_reward=timestep.reward)
        outputs, core = self._network.step(inputs, state.core, timestep.first)
        return outputs, state._replace(core=core, frames=frames)

    def carry(self, state: Nest, action: Nest) -> Nest:
        """Returns the state before the next timestep, to which an action `[B, ...]` leads."""
        return state._replace(previous_action=action) if self._previous_inputs else state

    def previous_reward(self, timestep: Timestep) -> Any:
        """Returns the part of a policy's extras for `sequence_inputs`: the reward `[B]`, or `()` if it is not taken."""
        return timestep.reward if self._previous_inputs else ()


def with_previous_action(state: Nest, action: Nest) -> Nest:
    """Returns a policy's state with another previous action `[B, ...]` where it carries one."""
    if isinstance(state, Carried):
        return state if isinstance(state.previous_action, tuple) else state._replace(previous_action=action)
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(with_previous_action(part, action) for part in state))
    return state


def sequence_inputs(record: Record, state: Nest) -> tuple[Inputs, Nest]:
    """Returns the inputs of a network for sequences from replay, `[T + 1, B, ...]`, and its state before them.

    Args:
      record: of a `Sample` with stacks of frames.  Extras may have a field `previous_reward`, `[T, B]` or `()`: the
        reward that came with an observation, whereas `record.reward` is the one that followed; and `bonus_weight`,
        `[T, B]` or `()`, that of each environment.
      state: the state of an `ActingNetwork` before the first observation, without frames.
    """
    weight = getattr(record.extras, "bonus_weight", ())
    if not isinstance(weight, tuple):
        weight = tf.concat([weight[:1], weight], axis=0)  # An environment has one weight.
    inputs = Inputs(record.observation, bonus_weight=weight)
    if not isinstance(state, Carried):
        return inputs, state
    previous_reward = getattr(record.extras, "previous_reward", ())
    if isinstance(previous_reward, tuple):
        return inputs, state.core
    actions = tree.map_structure(
        lambda before, actions: tf.concat([before[tf.newaxis], actions], axis=0), state.previous_action, record.action
    )
    rewards = tf.concat([previous_reward[:1], record.reward], axis=0)
    return inputs._replace(previous_action=actions, previous_reward=rewards), state.core
