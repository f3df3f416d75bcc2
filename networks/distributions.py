"""Distributions over actions, as data: parameters in, tensors out, randomness by stateless seeds."""

from typing import Any, NamedTuple

import tensorflow as tf


class Categorical(NamedTuple):
    """A choice among A actions, over any leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalised log-probabilities; finite, so an action is ruled out by a large negative number."""

    def sample(self, seed: Any, dtype: Any = tf.int32) -> tf.Tensor:
        """Actions `[...]`.

        Args:
          seed: int `[2]`; the same seed gives the same actions.
          dtype: int32 or int64.
        """
        logits = tf.convert_to_tensor(self.logits)
        flat = tf.reshape(logits, (-1, logits.shape[-1]))
        actions = tf.random.stateless_categorical(flat, num_samples=1, seed=seed, dtype=dtype)
        return tf.reshape(actions, tf.shape(logits)[:-1])

    def mode(self, dtype: Any = tf.int32) -> tf.Tensor:
        """The most likely actions `[...]`."""
        return tf.argmax(self.logits, axis=-1, output_type=dtype)

    def log_prob(self, action: Any) -> tf.Tensor:
        """The log-probability `[...]` of actions `[...]`."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=self.logits)

    def log_probs(self) -> tf.Tensor:
        """The log-probabilities `[..., A]` of all actions."""
        return tf.nn.log_softmax(self.logits)

    def entropy(self) -> tf.Tensor:
        """In nats, `[...]`."""
        log_probs = self.log_probs()
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)

    def kl(self, other: "Categorical") -> tf.Tensor:
        """KL(self || other) in nats, `[...]`."""
        log_probs = self.log_probs()
        return tf.reduce_sum(tf.exp(log_probs) * (log_probs - other.log_probs()), axis=-1)
