"""Heads for policies over composed actions: independent parts, or parts that see the parts before them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..actions.action_parts import ActionParts
from ..distributions import Categorical, DiagonalGaussian
from ..torsos.dense import LINEAR, Layers
from .heads import GaussianValueHead, PolicyValueHead, WithValue

_HIDDEN = (64,)
"""Hidden layers of an autoregressive part without others, so that it can combine what it sees."""


class ComposedValue(NamedTuple):
    """Outputs of a policy over independent parts and a value function, with leading axes `[...]`."""

    logits: Any
    """`[..., S]`, unnormalized log-probabilities of the values of all choices, concatenated; `()` without choices."""
    mean: Any
    """`[..., D]`, mean of the numbers; `()` without numbers."""
    log_std: Any
    """`[..., D]`, logarithm of their standard deviation; `()` without numbers."""
    value: Any
    """`[...]`, state value."""


class ComposedValueHead(WithValue):
    """A policy whose parts are independent of each other, given the features, and a value function.

    Args:
      parts: the parts of the action.
      layers: the separate hidden layers of the choices, of the numbers and of the value.
      with_value: see `heads.WithValue`.
      std: `initial_log_std` and `std_from_features` of `heads.GaussianValueHead`.
      name: name of the module.
    """

    def __init__(
        self, parts: ActionParts, layers: Layers = LINEAR, with_value: bool = True, name: str | None = None, **std: Any
    ):
        super().__init__(layers, with_value, name)
        self._choices = self._numbers = None
        if len(parts.sizes):
            self._choices = PolicyValueHead(int(parts.sizes.sum()), layers, with_value=False)
        if parts.numbers:
            self._numbers = GaussianValueHead(parts.numbers, layers, with_value=False, **std)

    def __call__(self, features: tf.Tensor) -> ComposedValue:
        """Maps features `[N, F]` to the parameters of the policy and values `[N]`."""
        numbers = None if self._numbers is None else self._numbers(features)
        return ComposedValue(
            logits=() if self._choices is None else self._choices(features).logits,
            mean=() if numbers is None else numbers.mean,
            log_std=() if numbers is None else numbers.log_std,
            value=self.value(features),
        )


class AutoregressiveValue(NamedTuple):
    """Outputs of `AutoregressiveValueHead`, with leading axes `[...]`."""

    features: Any
    """`[..., F]`, from which the parts of the action are chosen one after the other."""
    value: Any
    """`[...]`, state value."""


class AutoregressiveValueHead(WithValue):
    """A policy each of whose parts sees the parts before it, and a value function.

    π(a) = Π_i π(a_i | x, a_1 .. a_(i-1)) (Vinyals et al. 2019, "Grandmaster level in StarCraft II", "Architecture").
    Each part has an MLP of its own on the features and the parts before it, choices one-hot.

    Args:
      parts: the parts of the action.
      layers: the hidden layers of each part and of the value; parts have at least one.
      with_value: see `heads.WithValue`.
      std: see `ComposedValueHead`.
      name: name of the module.
    """

    def __init__(
        self, parts: ActionParts, layers: Layers = LINEAR, with_value: bool = True, name: str | None = None, **std: Any
    ):
        super().__init__(layers, with_value, name)
        layers = layers._replace(sizes=layers.sizes or _HIDDEN)
        self._parts = parts.parts
        self._heads: list[Any] = [
            PolicyValueHead(part.size, layers, with_value=False)
            if part.discrete
            else GaussianValueHead(part.size, layers, with_value=False, **std)
            for part in parts.parts
        ]
        self._built = False

    def __call__(self, features: tf.Tensor) -> AutoregressiveValue:
        """Maps features `[N, F]` to what the policy's parts are chosen from, and values `[N]`."""
        if not self._built:
            self._built = True
            before: list[tf.Tensor] = []
            for index, part in enumerate(self._parts):
                self.part(index, features, before)
                before.append(tf.zeros((tf.shape(features)[0], part.size), features.dtype))
        return AutoregressiveValue(features, self.value(features))

    def part(self, index: int, features: tf.Tensor, before: Sequence[tf.Tensor]) -> Categorical | DiagonalGaussian:
        """Returns the distribution of a part, given features `[..., F]` and each part before it, `[..., size]`."""
        outputs = self._heads[index](tf.concat([features, *before], axis=-1))
        if self._parts[index].discrete:
            return Categorical(outputs.logits)
        return DiagonalGaussian(outputs.mean, outputs.log_std)
