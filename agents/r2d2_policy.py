"""R2D2's policy: what it carries from one timestep to the next, and what it adds to the record."""

from typing import Any, NamedTuple

import tensorflow as tf

from ..data import Nest, Timestep
from ..networks.legal_actions import legal_actions, mask_illegal
from ..networks.network import Inputs
from ..replay import initial_frames, push_frames
from .q_learning import QPolicy


class R2D2State(NamedTuple):
    """Recurrent state of the policy; the previous reward is part of the timestep."""

    core: Nest
    """State of the network's core, leaves `[B, ...]`."""
    previous_action: Any
    """`[B]`, the action that led to the observation."""
    frames: Nest
    """Frames to stack with those of the observation.  Not written to replay, which already stores them."""


class R2D2Extras(NamedTuple):
    """What the behavior policy adds to the record."""

    q: Any
    """`[B, A]`, action values for the initial priorities, the lowest where actions are masked."""
    previous_reward: Any
    """`[B]`, the reward that came with the observation; a sequence holds only the rewards that followed."""


class R2D2Policy(QPolicy):
    """Acts on stacked frames, the previous action and the previous reward, with a recurrent core."""

    def initial_state(self, batch_size: int) -> R2D2State:
        return R2D2State(
            core=self.network.initial_state(batch_size),
            previous_action=tf.zeros((batch_size,), self._spec.action.dtype),
            frames=initial_frames(self._spec, self._agent.frame_stack, batch_size),
        )

    def __call__(
        self, timestep: Timestep, state: R2D2State, slot: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Nest, Nest, Nest]:
        observation, frames = push_frames(timestep, state.frames, self._agent.frame_stack)
        q, core = self.network.step(
            Inputs(observation, state.previous_action, timestep.reward), state.core, timestep.first
        )
        legal = legal_actions(observation)
        q = mask_illegal(q, legal)
        action = self.choose(q, slot, seed, legal)
        return action, R2D2Extras(q, timestep.reward), R2D2State(core, action, frames)


def without_frames(state: R2D2State) -> R2D2State:
    """Returns the part of the state that replay stores."""
    return state._replace(frames=())
