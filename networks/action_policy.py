"""Policies over actions of any kind: how a network's outputs are sampled, evaluated and turned into actions."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from dm_env import specs as dm_specs

from .. import specs
from ..data import Nest
from ..specs import EnvironmentSpec, MultiDiscreteArray
from . import stateless_random as noise
from .actions.action_bounds import ActionBounds
from .actions.action_parts import ActionPart, ActionParts, Chosen
from .actions.legal_actions import legal_actions, mask_illegal
from .distributions import Categorical, DiagonalGaussian
from .heads.composed_heads import AutoregressiveValueHead
from .random_streams import Stream, stream_seed


class ActionEvaluation(NamedTuple):
    """Log-probabilities of actions under a policy, and its entropies, with leading axes `[...]`."""

    log_prob: Any
    """`[...]`, log-probability, or log-density before scaling and clipping to the environment's bounds."""
    entropy: Any
    """`[...]`, entropy of the policy in nats; of an autoregressive one, the sum of its parts' entropies given the
    parts before them in the action, whose mean over actions it is."""


class ActionPolicy(abc.ABC):
    """A policy over the actions of one environment, as a function of a network's outputs and of observations.

    *Chosen* actions are those that the policy knows: integers `[...]` for one discrete action, `[..., D]` before
    scaling and clipping for one of numbers, and `Chosen` for a composed one.  Masks in observations are respected.
    """

    def choose(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor, best: bool) -> Any:
        """Returns the most likely actions if `best`, and sampled ones otherwise."""
        return self.mode(outputs, observation) if best else self.sample(outputs, observation, slot, seed)

    @abc.abstractmethod
    def sample(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> Any:
        """Returns sampled actions for leaves `[B, ...]`; slot and seed as in `agents.agent.Policy`."""

    @abc.abstractmethod
    def mode(self, outputs: Any, observation: Nest) -> Any:
        """Returns the most likely actions; of an autoregressive policy, the most likely parts one after the other."""

    @abc.abstractmethod
    def evaluate(self, outputs: Any, observation: Nest, chosen: Any) -> ActionEvaluation:
        """Evaluates chosen actions `[...]` under the policy."""

    @abc.abstractmethod
    def to_environment(self, chosen: Any) -> Nest:
        """Maps chosen actions to the environment's."""

    @abc.abstractmethod
    def numbers(self, chosen: Any) -> Any:
        """Returns the numbers of chosen actions before scaling and clipping, `[..., D]`; `()` if there are none.

        A record contains them, since they do not follow from the environment's action.
        """

    @abc.abstractmethod
    def from_record(self, action: Nest, numbers: Any) -> Any:
        """Returns the chosen actions from the environment's actions and `numbers`."""

    @abc.abstractmethod
    def from_environment(self, action: Nest, dtype: Any) -> Any:
        """Returns the chosen actions, numbers in `dtype`, that are the environment's: those within its bounds."""


class DiscretePolicy(ActionPolicy):
    """A categorical policy over one discrete action, of `heads.PolicyValue`."""

    def __init__(self, spec: EnvironmentSpec):
        self._dtype = spec.action.dtype

    def distribution(self, outputs: Any, observation: Nest) -> Categorical:
        """Returns the distribution of actions."""
        return Categorical(mask_illegal(outputs.logits, legal_actions(observation)))

    def sample(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return self.distribution(outputs, observation).sample(seed)

    def mode(self, outputs: Any, observation: Nest) -> tf.Tensor:
        return self.distribution(outputs, observation).mode()

    def evaluate(self, outputs: Any, observation: Nest, chosen: Any) -> ActionEvaluation:
        policy = self.distribution(outputs, observation)
        return ActionEvaluation(policy.log_prob(chosen), policy.entropy())

    def to_environment(self, chosen: tf.Tensor) -> tf.Tensor:
        return tf.cast(chosen, self._dtype)

    def numbers(self, chosen: Any) -> Any:
        return ()

    def from_record(self, action: Nest, numbers: Any) -> Any:
        return action

    def from_environment(self, action: Nest, dtype: Any) -> Any:
        return action


class GaussianPolicy(ActionPolicy):
    """A Gaussian policy over one array of numbers, of `heads.GaussianValue`."""

    def __init__(self, spec: EnvironmentSpec):
        self._bounds = ActionBounds(spec.action, unbounded=True)

    def sample(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return _sampled(DiagonalGaussian(outputs.mean, outputs.log_std), slot, seed)

    def mode(self, outputs: Any, observation: Nest) -> tf.Tensor:
        return DiagonalGaussian(outputs.mean, outputs.log_std).mode()

    def evaluate(self, outputs: Any, observation: Nest, chosen: Any) -> ActionEvaluation:
        policy = DiagonalGaussian(outputs.mean, outputs.log_std)
        return ActionEvaluation(policy.log_prob(chosen), policy.entropy())

    def to_environment(self, chosen: tf.Tensor) -> tf.Tensor:
        return self._bounds.to_environment(chosen)

    def numbers(self, chosen: Any) -> Any:
        return chosen

    def from_record(self, action: Nest, numbers: Any) -> Any:
        return numbers

    def from_environment(self, action: Nest, dtype: Any) -> tf.Tensor:
        return self._bounds.from_environment(action, dtype)


class _PartsPolicy(ActionPolicy):
    """Shared methods of policies over composed actions."""

    def __init__(self, spec: EnvironmentSpec):
        self._parts = ActionParts(spec.action)

    def to_environment(self, chosen: Chosen) -> Nest:
        return self._parts.to_environment(chosen)

    def numbers(self, chosen: Chosen) -> Any:
        return chosen.numbers

    def from_record(self, action: Nest, numbers: Any) -> Chosen:
        return Chosen(self._parts.choices(action), numbers)

    def from_environment(self, action: Nest, dtype: Any) -> Chosen:
        return Chosen(self._parts.choices(action), self._parts.unit_numbers(action, dtype))


class ComposedPolicy(_PartsPolicy):
    """A policy over independent parts, of `composed_heads.ComposedValue`: log-probabilities and entropies add up."""

    def sample(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> Chosen:
        choices, numbers = self._distributions(outputs, observation)
        return Chosen(
            choices=() if choices is None else choices.sample(seed, stream=Stream.ACTION_CHOICE),
            numbers=() if numbers is None else _sampled(numbers, slot, seed),
        )

    def mode(self, outputs: Any, observation: Nest) -> Chosen:
        choices, numbers = self._distributions(outputs, observation)
        return Chosen(() if choices is None else choices.mode(), () if numbers is None else numbers.mode())

    def evaluate(self, outputs: Any, observation: Nest, chosen: Chosen) -> ActionEvaluation:
        choices, numbers = self._distributions(outputs, observation)
        log_prob: Any = 0.0
        entropy: Any = 0.0
        if choices is not None:
            log_prob += tf.reduce_sum(choices.log_prob(chosen.choices), axis=-1)
            entropy += tf.reduce_sum(choices.entropy(), axis=-1)
        if numbers is not None:
            log_prob += numbers.log_prob(chosen.numbers)
            entropy += numbers.entropy()
        return ActionEvaluation(log_prob, entropy)

    def _distributions(self, outputs: Any, observation: Nest) -> tuple[Categorical | None, DiagonalGaussian | None]:
        """Returns the distributions of the choices, with logits `[..., K, M]`, and of the numbers."""
        choices = numbers = None
        if len(self._parts.sizes):
            rows = self._parts.choice_rows(outputs.logits)
            choices = Categorical(mask_illegal(rows, self._parts.legal_choices(observation)))
        if self._parts.numbers:
            numbers = DiagonalGaussian(outputs.mean, outputs.log_std)
        return choices, numbers


class AutoregressivePolicy(_PartsPolicy):
    """A policy each of whose parts sees the parts before it, of `composed_heads.AutoregressiveValue`."""

    def __init__(self, spec: EnvironmentSpec, head: AutoregressiveValueHead):
        super().__init__(spec)
        self._head = head

    def sample(self, outputs: Any, observation: Nest, slot: tf.Tensor, seed: tf.Tensor) -> Chosen:
        def choose(index: int, part: ActionPart, policy: Any) -> tf.Tensor:
            own_seed = stream_seed(seed, Stream.ACTION_PART, index)
            return policy.sample(own_seed) if part.discrete else _sampled(policy, slot, own_seed)

        return self._chain(outputs, observation, choose)[0]

    def mode(self, outputs: Any, observation: Nest) -> Chosen:
        return self._chain(outputs, observation, lambda index, part, policy: policy.mode())[0]

    def evaluate(self, outputs: Any, observation: Nest, chosen: Chosen) -> ActionEvaluation:
        def choose(index: int, part: ActionPart, policy: Any) -> tf.Tensor:
            if part.discrete:
                return chosen.choices[..., part.start]
            return chosen.numbers[..., part.start : part.start + part.size]

        return self._chain(outputs, observation, choose)[1]

    def _chain(
        self, outputs: Any, observation: Nest, choose: Callable[[int, ActionPart, Any], tf.Tensor]
    ) -> tuple[Chosen, ActionEvaluation]:
        """Chooses one part after the other, each by its index and its distribution given the parts before it."""
        features = outputs.features
        legal = self._parts.legal_choices(observation) if len(self._parts.sizes) else None
        seen: list[tf.Tensor] = []
        choices: list[tf.Tensor] = []
        numbers: list[tf.Tensor] = []
        log_prob: Any = 0.0
        entropy: Any = 0.0
        for index, part in enumerate(self._parts.parts):
            policy = self._head.part(index, features, seen)
            if isinstance(policy, Categorical):
                allowed = None if legal is None else legal[..., part.start, : part.size]
                policy = Categorical(mask_illegal(policy.logits, allowed))
            own = choose(index, part, policy)
            log_prob += policy.log_prob(own)
            entropy += policy.entropy()
            (choices if part.discrete else numbers).append(own)
            encoded = tf.one_hot(own, part.size, dtype=features.dtype) if part.discrete else own
            seen.append(tf.cast(encoded, features.dtype))
        return Chosen(
            choices=tf.stack(choices, axis=-1) if choices else (),
            numbers=tf.concat(numbers, axis=-1) if numbers else (),
        ), ActionEvaluation(log_prob, entropy)


def action_policy(spec: EnvironmentSpec, network: Any) -> ActionPolicy:
    """Returns the policy over an environment's actions that a `network.Network` parametrizes.

    Raises:
      CallboardError: a part of the action is neither discrete nor of floats.
    """
    if isinstance(spec.action, dm_specs.DiscreteArray):
        return DiscretePolicy(spec)
    if is_single_box(spec):
        return GaussianPolicy(spec)
    head = getattr(network, "head", None)
    head = getattr(head, "policy", head)
    return AutoregressivePolicy(spec, head) if isinstance(head, AutoregressiveValueHead) else ComposedPolicy(spec)


def is_single_box(spec: specs.EnvironmentSpec) -> bool:
    """Returns whether an environment's action is one array of numbers."""
    return isinstance(spec.action, dm_specs.Array) and not isinstance(
        spec.action, dm_specs.DiscreteArray | MultiDiscreteArray
    )


def _sampled(policy: DiagonalGaussian, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return policy.sample(noise.standard_normal(seed, Stream.ACTION, slot, policy.mean.shape[-1:], policy.mean.dtype))
