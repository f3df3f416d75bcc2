"""Frozen parts of a network: weights that no learner changes."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...errors import CallboardError
from .weight_names import matching, named_weights

_MARK = "_callboard_frozen"


def is_frozen(variable: tf.Variable) -> bool:
    """Returns whether a learner must not train a variable."""
    return getattr(variable, _MARK, False)


def find_frozen(networks: tf.Module, patterns: Sequence[str]) -> dict[str, tf.Variable]:
    """Returns the weights to freeze by name, see `weight_names.matching`.

    Raises:
      CallboardError: a pattern matches nothing, or no weights are left to train.
    """
    weights = named_weights(networks)
    frozen = {name: weights[name] for name in matching(weights, patterns, "freeze")}
    if not any(weight.trainable and name not in frozen for name, weight in weights.items()):
        raise CallboardError("freeze leaves no weights to train: freeze fewer parts of the network")
    return frozen


class FrozenWeights:
    """Keeps parts of a network as they are.

    It must be made before the learner: a `GradientStep` then leaves the marked variables out.  What a learner does not
    train but updates (statistics of a normalizer or of batch normalization) is reset by `keep` after every step.
    Target networks still follow their online networks, which do not move where they are frozen.

    Args:
      networks: the networks.
      patterns: parts to freeze; may be empty.

    Raises:
      CallboardError: as `find_frozen`.
    """

    def __init__(self, networks: tf.Module, patterns: Sequence[str]):
        self._frozen: Mapping[str, tf.Variable] = find_frozen(networks, patterns) if patterns else {}
        for weight in self._frozen.values():
            setattr(weight, _MARK, True)
        self._statistics: list[tuple[tf.Variable, np.ndarray]] = []
        self._expected: list[tuple[str, tf.Variable, np.ndarray]] = []

    def remember(self, policy_variables: Sequence[tf.Variable]) -> None:
        """Takes the present values as those to keep; called before the first step, after weights were loaded."""
        acting = set(map(id, policy_variables))
        for name, weight in self._frozen.items():
            if not weight.trainable:
                self._statistics.append((weight, weight.numpy()))
            elif id(weight) in acting:
                self._expected.append((name, weight, weight.numpy()))

    def keep(self) -> None:
        """Resets frozen statistics; called after every step of the learner.

        Raises:
          CallboardError: the agent's own learner has trained a frozen weight in its first step.
        """
        for weight, value in self._statistics:
            weight.assign(value)
        expected, self._expected = self._expected, []
        for name, weight, value in expected:
            if not np.array_equal(weight.numpy(), value):
                raise CallboardError(
                    f"the agent's learner trains {name}, which freeze names; let it make its steps by "
                    "agents.gradient_step.GradientStep, or leave out variables that frozen_weights.is_frozen"
                )


def trained(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables that are not frozen."""
    return [variable for variable in variables if not is_frozen(variable)]
