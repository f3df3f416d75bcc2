"""Heads for policies over composed actions: independent parts, or parts that see the parts before them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..actions.action_parts import ActionParts
from ..distributions import Categorical, DiagonalGaussian
from .heads import GaussianValueHead, PolicyValueHead, ValueHead

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


class ComposedValueHead(tf.Module):
    """A policy whose parts are independent of each other, given the features, and a value function.

    Args:
      parts: the parts of the action.
      hidden_sizes: sizes of the separate hidden layers of the choices, of the numbers and of the value.
      activation: activation of the hidden layers.
      layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
      with_value: whether there is a value; otherwise it is `()`, for another network to give.
      std: `initial_log_std` and `std_from_features` of `heads.GaussianValueHead`.
      name: name of the module.
    """

    def __init__(
        self,
        parts: ActionParts,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "tanh",
        layer_norm: bool = False,
        with_value: bool = True,
        name: str | None = None,
        **std: Any,
    ):
        super().__init__(name)
        layers = {"hidden_sizes": hidden_sizes, "activation": activation, "layer_norm": layer_norm}
        self._choices = self._numbers = None
        if len(parts.sizes):
            self._choices = PolicyValueHead(int(parts.sizes.sum()), with_value=False, **layers)
        if parts.numbers:
            self._numbers = GaussianValueHead(parts.numbers, with_value=False, **layers, **std)
        self._value = ValueHead(**layers) if with_value else None

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return () if self._value is None else self._value.trainable_variables

    def __call__(self, features: tf.Tensor) -> ComposedValue:
        """Maps features `[N, F]` to the parameters of the policy and values `[N]`."""
        numbers = None if self._numbers is None else self._numbers(features)
        return ComposedValue(
            logits=() if self._choices is None else self._choices(features).logits,
            mean=() if numbers is None else numbers.mean,
            log_std=() if numbers is None else numbers.log_std,
            value=() if self._value is None else self._value(features),
        )


class AutoregressiveValue(NamedTuple):
    """Outputs of `AutoregressiveValueHead`, with leading axes `[...]`."""

    features: Any
    """`[..., F]`, from which the parts of the action are chosen one after the other."""
    value: Any
    """`[...]`, state value."""


class AutoregressiveValueHead(tf.Module):
    """A policy each of whose parts sees the parts before it, and a value function.

    π(a) = Π_i π(a_i | x, a_1 .. a_(i-1)) (Vinyals et al. 2019, "Grandmaster level in StarCraft II", "Architecture").
    Each part has an MLP of its own on the features and the parts before it, choices one-hot.

    Args:
      parts: the parts of the action.
      hidden_sizes: sizes of the hidden layers of each part and of the value; parts have at least one.
      activation: see `ComposedValueHead`, as for the arguments below.
      layer_norm: whether the hidden layers are normalized.
      with_value: whether there is a value.
      std: of the numbers.
      name: name of the module.
    """

    def __init__(
        self,
        parts: ActionParts,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "tanh",
        layer_norm: bool = False,
        with_value: bool = True,
        name: str | None = None,
        **std: Any,
    ):
        super().__init__(name)
        layers = {"activation": activation, "layer_norm": layer_norm, "hidden_sizes": hidden_sizes or _HIDDEN}
        self._parts = parts.parts
        self._heads: list[Any] = [
            PolicyValueHead(part.size, with_value=False, **layers)
            if part.discrete
            else GaussianValueHead(part.size, with_value=False, **layers, **std)
            for part in parts.parts
        ]
        self._value = ValueHead(**{**layers, "hidden_sizes": hidden_sizes}) if with_value else None
        self._built = False

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the value."""
        return () if self._value is None else self._value.trainable_variables

    def __call__(self, features: tf.Tensor) -> AutoregressiveValue:
        """Maps features `[N, F]` to what the policy's parts are chosen from, and values `[N]`."""
        if not self._built:
            self._built = True
            before: list[tf.Tensor] = []
            for index, part in enumerate(self._parts):
                self.part(index, features, before)
                before.append(tf.zeros((tf.shape(features)[0], part.size), features.dtype))
        return AutoregressiveValue(features, () if self._value is None else self._value(features))

    def part(self, index: int, features: tf.Tensor, before: Sequence[tf.Tensor]) -> Categorical | DiagonalGaussian:
        """Returns the distribution of a part, given features `[..., F]` and each part before it, `[..., size]`."""
        outputs = self._heads[index](tf.concat([features, *before], axis=-1))
        if self._parts[index].discrete:
            return Categorical(outputs.logits)
        return DiagonalGaussian(outputs.mean, outputs.log_std)
