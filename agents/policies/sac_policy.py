"""How SAC acts, with Gaussian or categorical policies, and the networks that it acts with."""

import functools
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ...data import Nest, Timestep
from ...networks import stateless_random as noise
from ...networks.actions.legal_actions import legal_actions, mask_illegal
from ...networks.actor_critics.actor_critic import ActorCritic
from ...networks.distributions import Categorical
from ...networks.network import keep_spec
from ...networks.random_streams import Stream
from ...specs import EnvironmentSpec
from ..agent import Mode
from ..learning.network_inputs import ActingNetwork
from ..learning.reward_normalizer import RewardNormalizer


class SacNetworks(tf.Module):
    """Actor and critics, and whether learning has begun."""

    def __init__(self, actor_critic: ActorCritic, spec: EnvironmentSpec, returns: RewardNormalizer | None = None):
        super().__init__()
        self.actor_critic = actor_critic
        self.returns = returns
        """Statistics of discounted returns; None if rewards are not normalized."""
        keep_spec(self, spec)
        self.learning = tf.Variable(False, trainable=False, name="learning")
        """bool, whether the learner has made its first step.  Until then actors take uniformly random actions."""


class HeldAction(NamedTuple):
    """Recurrent state of a policy that repeats its actions."""

    action: Any
    """The previous action: `[B, D]` in [-1, 1], integers `[B]`, or `action_parts.Chosen`."""
    left: Any
    """int32 `[B]`, number of timesteps for which it will be repeated."""
    network: Nest = ()
    """State of the `ActingNetwork`."""


class SacPolicy(tf.Module):
    """Samples from the policy in training (uniformly until learning begins); takes its median in evaluation.

    Where actions are repeated, the recurrent state is a `HeldAction`.
    """

    def __init__(self, networks: SacNetworks, hold: int, mode: Mode, frame_stack: int = 1):
        super().__init__()
        self.network = networks.actor_critic.policy
        self._acting = ActingNetwork(self.network, frame_stack)
        self.learning = networks.learning
        self._bounds: Any = networks.actor_critic.bounds
        self._hold = hold if mode == "train" else 1
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        network_state = self._acting.initial_state(batch_size)
        if self._hold == 1:
            return network_state
        return HeldAction(self._no_action(batch_size), tf.zeros((batch_size,), tf.int32), network_state)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        policy, network_state = self._acting.step(timestep, state if self._hold == 1 else state.network)
        if self._mode == "evaluate":
            return self._to_environment(self._best(policy)), (), network_state
        action, legal = self._sampled(policy, slot, seed), legal_actions(timestep.observation)
        if self._mode == "train":
            by_chance = self._by_chance(policy, legal, slot, seed)
            action = tree.map_structure(functools.partial(tf.where, self.learning), action, by_chance)
        if self._hold == 1:
            return self._to_environment(action), (), network_state
        renew = timestep.first | (state.left == 0) | self._forbidden(state.action, legal)
        action = tree.map_structure(
            lambda new, held: tf.where(tf.reshape(renew, (-1, *[1] * (new.shape.rank - 1))), new, held),
            action,
            state.action,
        )
        held = HeldAction(action, tf.where(renew, self._hold, state.left) - 1, network_state)
        return self._to_environment(action), (), held

    def _no_action(self, batch_size: int) -> tf.Tensor:
        return tf.zeros((batch_size, self._bounds.size), tf.keras.backend.floatx())

    def _best(self, policy: Any) -> tf.Tensor:
        return policy.mode()

    def _sampled(self, policy: Any, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return policy.sample(noise.standard_normal(seed, Stream.ACTION, slot, (self._bounds.size,), policy.mean.dtype))

    def _by_chance(self, policy: Any, legal: Any, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return 2 * noise.uniform(seed, Stream.UNIFORM_ACTION, slot, (self._bounds.size,), policy.mean.dtype) - 1

    def _forbidden(self, held: Any, legal: Any) -> Any:
        """Returns in which environments a held action is not legal any more, bool `[B]` or False."""
        return False

    def _to_environment(self, action: tf.Tensor) -> tf.Tensor:
        return self._bounds.to_environment(action)


class DiscreteSacPolicy(SacPolicy):
    """Likewise for one discrete action; in evaluation it takes the most likely one."""

    def __init__(self, networks: SacNetworks, hold: int, mode: Mode, frame_stack: int = 1):
        super().__init__(networks, hold, mode, frame_stack)
        self._dtype = tf.as_dtype(networks.spec.action.dtype)

    def _no_action(self, batch_size: int) -> tf.Tensor:
        return tf.zeros((batch_size,), self._dtype)

    def _best(self, policy: Any) -> tf.Tensor:
        return policy.mode(self._dtype)

    def _sampled(self, policy: Any, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return gumbel_sample(policy, slot, seed, Stream.ACTION, self._dtype)

    def _by_chance(self, policy: Any, legal: Any, slot: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        uniform = Categorical(mask_illegal(tf.zeros_like(policy.logits), legal))
        return gumbel_sample(uniform, slot, seed, Stream.UNIFORM_ACTION, self._dtype)

    def _forbidden(self, held: Any, legal: Any) -> Any:
        return False if legal is None else ~tf.gather(legal, held, batch_dims=1)

    def _to_environment(self, action: tf.Tensor) -> tf.Tensor:
        return action


def gumbel_sample(
    policy: Categorical, slot: tf.Tensor, seed: tf.Tensor, stream: str, dtype: Any = tf.int32
) -> tf.Tensor:
    """Samples actions `[B, ...]` of a policy with logits `[B, ..., A]`.

    The largest of the logits plus Gumbel noise is a sample of the softmax; the noise depends on the slot alone.
    """
    uniform = noise.uniform(seed, stream, slot, policy.logits.shape[1:], tf.float64)
    gumbel = -tf.math.log(-tf.math.log1p(-uniform))
    return tf.argmax(tf.cast(policy.logits, tf.float64) + gumbel, axis=-1, output_type=dtype)
