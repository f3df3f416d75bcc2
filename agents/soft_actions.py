"""SAC's methods for each kind of action: sampling, values, and bounds of the entropy.

The numbers of an action are sampled, and of discrete choices there are expectations.  What a critic takes is a
*choice*: unit numbers `[B, D]`; log-probabilities `[B, A]` of one discrete action; or numbers and probabilities of an
action of several parts.  One that was taken is certain.
"""

from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from ..data import Nest
from ..networks import stateless_random as noise
from ..networks.actions.action_bounds import ActionBounds
from ..networks.actions.action_parts import ActionParts, Chosen, one_hot_choices
from ..networks.actions.legal_actions import legal_actions, mask_illegal
from ..networks.actor_critics.actor_critic import ActorCritic
from ..networks.actor_critics.composed_actor_critic import ComposedActorCritic, SoftParts
from ..networks.distributions import Categorical
from ..networks.random_streams import Stream
from .agent import Mode
from .losses.discrete_soft_actor_critic import expected_log_prob, expected_value
from .policies.sac_policy import DiscreteSacPolicy, SacNetworks, SacPolicy, gumbel_sample


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


ENTROPY_SHARE = 0.5
"""Default target of the entropy, as a share of the largest, of the uniform policy.

Christodoulou 2019 has 0.98 (appendix B).  Where actions matter that is more than a policy reaches which also maximizes
the entropy of later actions, and the temperature grows without end (Xu et al. 2021, https://arxiv.org/abs/2112.02852).
"""


class Sampled(NamedTuple):
    """Actions of a policy."""

    choice: Nest
    """Actions as the critics take them, leaves `[B, ...]`."""
    log_prob: Any
    """`[B]`, log pi(a|x) of numbers, and minus the entropy of choices."""


class BoxActions:
    """One array of numbers."""

    policy: ClassVar[type[SacPolicy]] = SacPolicy

    def __init__(self, bounds: ActionBounds):
        self._bounds = bounds
        self.numbers = bounds.size
        """Numbers in the noise of a sample."""

    def sample(self, policy: Any, normal: Any) -> Sampled:
        """Samples from the network's outputs with noise `[B, numbers]`."""
        return Sampled(*policy.sample_and_log_prob(normal))

    def taken(self, action: Nest, dtype: Any) -> Nest:
        """Returns the environment's actions in the form in which the critics take them."""
        return self._bounds.from_environment(action, dtype)

    def values(self, critic: Any, observation: Nest, choice: Nest) -> tf.Tensor:
        """Returns the critics' outputs `[K, B, ...]`."""
        return critic(observation, choice)

    def mean(self, choice: Nest, values: tf.Tensor) -> tf.Tensor:
        """Returns the mean of such values over the choice, `[..., B]`."""
        return values

    def default_entropy(self, observation: Nest, dtype: Any) -> Any:
        """Returns the default target of the entropy, a scalar or `[B]`."""
        return -float(self.numbers)


class DiscreteActions(BoxActions):
    """One discrete choice (Christodoulou 2019): the critics output the values of all."""

    policy = DiscreteSacPolicy
    numbers = 0

    def __init__(self, number: int):
        self._number = number

    def sample(self, policy: Any, normal: Any) -> Sampled:
        log_probs = policy.log_probs()
        return Sampled(log_probs, expected_log_prob(log_probs))

    def taken(self, action: Nest, dtype: Any) -> Nest:
        return tf.math.log(tf.one_hot(action, self._number, dtype=dtype))

    def values(self, critic: Any, observation: Nest, choice: Nest) -> tf.Tensor:
        return critic(observation)

    def mean(self, choice: Nest, values: tf.Tensor) -> tf.Tensor:
        return expected_value(choice, values)

    def default_entropy(self, observation: Nest, dtype: Any) -> Any:
        legal = legal_actions(observation)
        number = self._number if legal is None else tf.reduce_sum(tf.cast(legal, dtype), axis=-1)
        return ENTROPY_SHARE * tf.math.log(tf.cast(number, dtype))


class ComposedActions(BoxActions):
    """Several parts, see `ComposedSacPolicy`: the critics output the mean over the choices themselves."""

    policy = ComposedSacPolicy

    def __init__(self, networks: ComposedActorCritic):
        self._parts = networks.parts
        self.numbers = networks.parts.numbers

    def sample(self, policy: Any, normal: Any) -> Sampled:
        numbers, weight, log_prob = sampled_parts(policy, normal)
        return Sampled((numbers, weight), log_prob)

    def taken(self, action: Nest, dtype: Any) -> Nest:
        return taken_parts(self._parts, action, dtype)

    def values(self, critic: Any, observation: Nest, choice: Nest) -> tf.Tensor:
        return critic(observation, *choice)

    def default_entropy(self, observation: Nest, dtype: Any) -> Any:
        return default_target_entropy(self._parts, observation, ENTROPY_SHARE, dtype)


def soft_actions(networks: ActorCritic) -> BoxActions:
    """Returns the kind of action of SAC's networks."""
    if isinstance(networks, ComposedActorCritic):
        return ComposedActions(networks)
    if networks.bounds is None:
        return DiscreteActions(networks.policy.spec.action.num_values)
    return BoxActions(networks.bounds)
