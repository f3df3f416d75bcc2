"""REINFORCE with a baseline (Williams 1992, https://doi.org/10.1007/BF00992696), as an example of a custom agent.

Run from the root of the repository:

    callboard train examples.reinforce:Reinforce --env CartPole-v1 --max-steps 300000 --stop-return 200

REINFORCE has no importance weights, so its data should be nearly on-policy: use a short queue and a small learning
rate.
"""

import dataclasses
import functools

import tensorflow as tf
from dm_env import specs

from callboard.agents import Agent, Mode
from callboard.agents.learning.gradient_learner import GradientLearner
from callboard.agents.learning.gradient_step import LossOutput
from callboard.agents.learning.optimizers import make_objective
from callboard.agents.losses.policy_gradient import entropy_loss, policy_gradient_loss, value_loss
from callboard.agents.losses.recurrence import backward_sum
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.agents.watched import Gradient, Quantity, Returns
from callboard.data import Layout, Nest, Sample, Timestep
from callboard.errors import CallboardError
from callboard.networks.distributions import Categorical
from callboard.networks.factory import policy_value_network
from callboard.networks.network import Inputs, Network
from callboard.replay import SequenceQueue
from callboard.transitions import valid_transitions


class ReinforcePolicy(tf.Module):
    """Samples actions in training, and takes the most likely action in evaluation."""

    def __init__(self, network: Network, mode: Mode):
        super().__init__()
        self.network = network
        self._mode = mode

    def initial_state(self, batch_size: int) -> Nest:
        return self.network.initial_state(batch_size)

    def __call__(self, timestep: Timestep, state: Nest, slot: tf.Tensor, seed: tf.Tensor) -> tuple[Nest, Nest, Nest]:
        outputs, state = self.network.step(Inputs(timestep.observation), state, timestep.first)
        policy = Categorical(outputs.logits)
        # No extras in the record: the loss only uses the learner's network, not the outputs of the acting one.
        return (policy.sample(seed) if self._mode == "train" else policy.mode()), (), state


@dataclasses.dataclass(frozen=True)
class Reinforce(Agent):
    """REINFORCE with a baseline.

    Attributes:
      unroll_length: transitions in a sequence (T); returns bootstrap from the baseline at its end.
      batch_size: sequences in a learner step.
      discount: γ.
      baseline_cost: weight of the baseline's loss.
      entropy_cost: weight of the entropy bonus.
      optimizer: the optimizer.
      hidden_sizes: layers of the network.
    """

    unroll_length: int = 32
    batch_size: int = 16
    discount: float = 0.99
    baseline_cost: float = 0.05
    entropy_cost: float = 0.01
    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=2e-3, epsilon=1e-5, max_gradient_norm=40.0)
    hidden_sizes: tuple[int, ...] = (64, 64)

    watched = (Gradient(), Quantity.ENTROPY, Returns())

    def check(self, layout: Layout) -> None:
        if not isinstance(layout.spec.action, specs.DiscreteArray):
            raise CallboardError("this REINFORCE has a categorical policy and needs one discrete action")
        self.make_replay(layout).check()

    def make_networks(self, layout: Layout) -> Network:
        return policy_value_network(layout.spec, hidden_sizes=self.hidden_sizes)

    def make_policy(self, networks: Network, mode: Mode) -> ReinforcePolicy:
        return ReinforcePolicy(networks, mode)

    def make_replay(self, layout: Layout) -> SequenceQueue:
        # At most one batch in the queue, so that the data is nearly on-policy.
        return SequenceQueue(layout, self.unroll_length, self.batch_size, batches=1)

    def make_learner(self, networks: Network, strategy: tf.distribute.Strategy, layout: Layout) -> GradientLearner:
        steps = layout.max_steps // (self.unroll_length * self.batch_size)
        objective = make_objective("loss", networks.trainable_variables, self.optimizer, steps)
        return GradientLearner(functools.partial(self.loss, networks), [objective], strategy)

    def loss(self, network: Network, sample: Sample) -> LossOutput:
        """Returns a replica's part of a batch's loss and metrics; `sample` holds T transitions of each sequence."""
        record = sample.record
        outputs, _ = network.unroll(Inputs(record.observation), sample.state, record.first)
        policy, value = Categorical(outputs.logits[:-1]), outputs.value
        valid_t = valid_transitions(record.first, record.last, record.discount)
        return_t = returns(value, record.reward, self.discount * record.discount, valid_t)

        def mean(per_transition: tf.Tensor) -> tf.Tensor:
            # Dividing by the size of the global batch makes the sum over the learner's devices the mean.
            return tf.reduce_sum(per_transition) / (self.unroll_length * self.batch_size)

        policy_part = mean(policy_gradient_loss(policy.log_prob(record.action), return_t - value[:-1], valid_t))
        baseline_part = mean(value_loss(value[:-1], return_t, valid_t))
        entropy_part = mean(entropy_loss(policy.entropy(), valid_t))
        loss = policy_part + self.baseline_cost * baseline_part + self.entropy_cost * entropy_part
        return LossOutput(loss, {"baseline_loss": baseline_part, "entropy": -entropy_part})


def returns(value: tf.Tensor, r_t: tf.Tensor, discount_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
    """Returns the discounted sum of rewards from each observation to the end of its episode or of the sequence.

    G_t = r_t + discount_t G_{t+1}.  The recursion starts from the baseline at the end of the sequence and wherever the
    next transition is not valid, which is after a time limit and where an episode was cut off.  After a termination
    the discount is 0.

    Args:
      value: `[T + 1, B]`, the baseline.
      r_t: `[T, B]`, the rewards that followed the actions.
      discount_t: `[T, B]`, γ times the environment's discounts that followed the actions.
      valid_t: bool `[T, B]`, the mask of valid transitions.

    Returns:
      `[T, B]`, without gradients.
    """
    decay_t = tf.where(valid_t, discount_t, 0.0)
    step_t = tf.where(valid_t, r_t, value[:-1])
    bootstrap = tf.concat([tf.zeros_like(value[1:-1]), value[-1:]], axis=0)
    return tf.stop_gradient(backward_sum(step_t + decay_t * bootstrap, decay_t))
