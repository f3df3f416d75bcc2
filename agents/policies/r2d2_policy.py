"""R2D2's policy, and what it adds to the record."""

from typing import Any, NamedTuple

import tensorflow as tf

from ...data import Nest, Timestep
from ...networks.actions.legal_actions import mask_illegal
from ..learning.q_learning import QPolicy


class R2D2Extras(NamedTuple):
    """Values that the behavior policy adds to the record."""

    q: Any
    """`[B, A]`, or `[B, K, M]` for several choices: values for the initial priorities, the lowest where masked."""
    previous_reward: Any
    """See `ActingNetwork.previous_reward`."""
    return_deviation: Any = ()
    """See `QPolicy.return_deviation`."""


class R2D2Policy(QPolicy):
    """Acts on stacked frames, the previous action and the previous reward, with a recurrent core."""

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self._acting.step(timestep, state)
        legal = self._actions.legal(timestep.observation)
        q = mask_illegal(outputs, legal)
        action = self._actions.of_values(self.choose(q, slot, seed, legal))
        extras = R2D2Extras(q, self._acting.previous_reward(timestep), self.return_deviation(slot))
        return action, extras, self._acting.carry(state, action)
