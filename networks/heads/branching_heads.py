"""Values of actions of several discrete choices: a branch for each choice (Tavakoli et al. 2018)."""

import tensorflow as tf

from ..actions.action_parts import ActionParts
from ..actions.legal_actions import legal_mean
from ..torsos.dense import LINEAR, Layers
from .heads import MLPHead


class BranchingQHead(tf.Module):
    """Values of each choice of an action, Q_k(x, a_k) = V(x) + A_k(x, a_k) - mean_b A_k(x, b).

    Tavakoli et al. 2018, "Action branching architectures for deep reinforcement learning": the branches share the
    value, and each has a stream of advantages.  The mean is that of legal values.
    """

    takes_legal = True

    def __init__(
        self, parts: ActionParts, layers: Layers = LINEAR, dueling: bool = True, name: str | None = None
    ) -> None:
        """Creates a head for an action of K discrete choices.

        Args:
          parts: the choices.
          layers: hidden layers of each stream.
          dueling: whether there is a shared value; otherwise each branch outputs its values.
          name: name of the module.
        """
        super().__init__(name)
        self._parts = parts
        self._value = MLPHead(1, layers) if dueling else None
        self._branches = [MLPHead(int(size), layers) for size in parts.sizes]

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> tf.Tensor:
        """Maps features `[N, F]` and which values are legal, bool `[N, S]`, to q `[N, K, M]`, padded with any numbers.

        S counts the values of all choices, and M those of the one with the most.
        """
        advantage = self._parts.choice_rows(tf.concat([branch(features) for branch in self._branches], axis=-1))
        if self._value is None:
            return advantage
        rows = self._parts.legal_rows(legal)
        return self._value(features)[:, tf.newaxis] + advantage - legal_mean(advantage, rows)
