"""SAC's methods for each kind of action: sampling, values, and bounds of the entropy.

The numbers of an action are sampled, and of discrete choices there are expectations.  What a critic takes is a
*choice*: unit numbers `[B, D]`; log-probabilities `[B, A]` of one discrete action; or numbers and probabilities of an
action of several parts.  One that was taken is certain.
"""

from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from ..data import Nest
from ..networks.actions.action_bounds import ActionBounds
from ..networks.actions.legal_actions import legal_actions
from ..networks.actor_critics.actor_critic import ActorCritic
from ..networks.actor_critics.composed_actor_critic import ComposedActorCritic
from .losses.discrete_soft_actor_critic import expected_log_prob, expected_value
from .policies.sac_policy import DiscreteSacPolicy, SacPolicy
from .sac_composed import ComposedSacPolicy, default_target_entropy, sampled_parts, taken_parts

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
    """Several parts, see `sac_composed`: the critics output the mean over the choices themselves."""

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
