"""SAC over composed actions: discrete choices and numbers.

The numbers are sampled, as in SAC; the choices are not, since critics give the expectation over them
(`networks.composed_actor_critic.AdditiveCritics`), as in Christodoulou 2019.  One temperature weighs the entropy of
all parts.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from ..data import Nest
from ..networks import stateless_random as noise
from ..networks.actions.action_parts import ActionParts, Chosen, one_hot_choices
from ..networks.actions.legal_actions import mask_illegal
from ..networks.actor_critics.composed_actor_critic import SoftParts
from ..networks.distributions import Categorical
from ..networks.random_streams import Stream
from .agent import Mode
from .losses.discrete_soft_actor_critic import expected_log_prob
from .policies.sac_policy import SacNetworks, SacPolicy, gumbel_sample


class SampledParts(NamedTuple):
    """Actions of a policy: numbers as sampled, and choices as probabilities."""

    numbers: Any
    """`[B, D]`; `()` without numbers."""
    weight: Any
    """`[B, K, M]`; `()` without choices."""
    log_prob: Any
    """`[B]`, log-density of the numbers minus the entropy of the choices."""


class ComposedSacPolicy(SacPolicy):
    """Acts as `SacPolicy`, with `action_parts.Chosen` actions; in evaluation choices are the most likely ones."""

    def __init__(self, networks: SacNetworks, hold: int, mode: Mode, frame_stack: int = 1):
        super().__init__(networks, hold, mode, frame_stack)
        self._parts = networks.actor_critic.parts

    def _no_action(self, batch_size: int) -> Chosen:
        count, numbers = len(self._parts.sizes), self._parts.numbers
        return Chosen(
            choices=tf.zeros((batch_size, count), tf.int32) if count else (),
            numbers=tf.zeros((batch_size, numbers), tf.keras.backend.floatx()) if numbers else (),
        )

    def _best(self, policy: SoftParts) -> Chosen:
        return Chosen(*(part.mode() if part else () for part in policy))

    def _sampled(self, policy: SoftParts, slot: tf.Tensor, seed: tf.Tensor) -> Chosen:
        numbers: Any = ()
        if self._parts.numbers:
            mean = policy.numbers.mean
            numbers = policy.numbers.sample(
                noise.standard_normal(seed, Stream.ACTION, slot, mean.shape[-1:], mean.dtype)
            )
        return Chosen(self._sampled_choices(policy.choices, slot, seed, Stream.ACTION_CHOICE), numbers)

    def _by_chance(self, policy: SoftParts, legal: Any, slot: tf.Tensor, seed: tf.Tensor) -> Chosen:
        choices = numbers = ()
        if len(self._parts.sizes):
            uniform = mask_illegal(tf.zeros_like(policy.choices.logits), self._parts.legal_rows(legal))
            choices = self._sampled_choices(Categorical(uniform), slot, seed, Stream.UNIFORM_CHOICE)
        if self._parts.numbers:
            mean = policy.numbers.mean
            numbers = 2 * noise.uniform(seed, Stream.UNIFORM_ACTION, slot, mean.shape[-1:], mean.dtype) - 1
        return Chosen(choices, numbers)

    def _forbidden(self, held: Chosen, legal: Any) -> Any:
        if legal is None:
            return False
        return ~tf.reduce_all(tf.gather(self._parts.legal_rows(legal), held.choices, batch_dims=2), axis=-1)

    def _to_environment(self, action: Chosen) -> Nest:
        return self._parts.to_environment(action)

    def _sampled_choices(self, choices: Any, slot: tf.Tensor, seed: tf.Tensor, stream: str) -> Any:
        return gumbel_sample(choices, slot, seed, stream) if len(self._parts.sizes) else ()


def sampled_parts(policy: SoftParts, normal: Any) -> SampledParts:
    """Samples the numbers of a policy with noise `[B, D]`, differentiable in the policy's parameters."""
    numbers = weight = ()
    log_prob: Any = 0.0
    if policy.numbers:
        numbers, log_prob = policy.numbers.sample_and_log_prob(normal)
    if policy.choices:
        log_probs = policy.choices.log_probs()
        weight = tf.exp(log_probs)
        log_prob += tf.reduce_sum(expected_log_prob(log_probs), axis=-1)
    return SampledParts(numbers, weight, log_prob)


def taken_parts(parts: ActionParts, action: Nest, dtype: Any) -> tuple[Any, Any]:
    """Returns the numbers `[B, D]` and the choices, as one-hot rows `[B, K, M]`, of actions of the environment."""
    weight = one_hot_choices(parts, parts.choices(action), dtype) if len(parts.sizes) else ()
    return parts.unit_numbers(action, dtype), weight


def default_target_entropy(parts: ActionParts, observation: Nest, share: float, dtype: Any) -> Any:
    """Returns the default target of the entropy of all parts together, a scalar or `[B]`.

    It is minus the number of numbers, plus a share of the largest entropy of the choices' legal values.
    """
    if not len(parts.sizes):
        return -float(parts.numbers)
    legal = parts.legal_choices(observation)
    counts = parts.sizes if legal is None else tf.reduce_sum(tf.cast(legal, dtype), axis=-1)
    return share * tf.reduce_sum(tf.math.log(tf.cast(counts, dtype)), axis=-1) - parts.numbers
