"""Distributions over actions, as data: parameters in, tensors out, randomness by stateless seeds."""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Categorical(NamedTuple):
    """A choice among A actions, over any leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalized log-probabilities; finite, so an action is ruled out by a large negative number."""

    def sample(self, seed: Any, dtype: Any = tf.int32) -> tf.Tensor:
        """Actions `[...]`.

        Of logits that are NaN any action, whose log-probability is NaN.

        Args:
          seed: int `[2]`; the same seed gives the same actions.  Or `[K, 2]`: one for each of K parts of the first
            axis, which are equally long, as if each were sampled by itself.
          dtype: int32 or int64.
        """
        logits, seed = tf.convert_to_tensor(self.logits), tf.convert_to_tensor(seed)

        def draw(part: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return tf.random.stateless_categorical(part[0], num_samples=1, seed=part[1], dtype=dtype)

        if seed.shape.rank == 1:
            actions = draw((tf.reshape(logits, (-1, logits.shape[-1])), seed))
        else:
            parts = tf.reshape(logits, (tf.shape(seed)[0], -1, logits.shape[-1]))
            actions = tf.map_fn(draw, (parts, seed), fn_output_signature=tf.TensorSpec((None, 1), dtype))
        # Of NaN logits TensorFlow draws A, which is no action: their log-probability could not even be computed.
        actions = tf.minimum(actions, tf.cast(logits.shape[-1] - 1, dtype))
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


class DiagonalGaussian(NamedTuple):
    """A Gaussian with independent components: actions in R^D, over any leading axes `[...]`."""

    mean: Any
    """`[..., D]`."""
    log_std: Any
    """`[..., D]`, logarithm of the standard deviation."""

    def sample(self, noise: Any) -> tf.Tensor:
        """Actions `[..., D]` from standard normal noise `[..., D]`."""
        mean = tf.convert_to_tensor(self.mean)
        return mean + tf.exp(self.log_std) * tf.cast(noise, mean.dtype)

    def mode(self) -> tf.Tensor:
        """The most likely action `[..., D]`."""
        return tf.convert_to_tensor(self.mean)

    def log_prob(self, action: Any) -> tf.Tensor:
        """The log-density `[...]` of actions `[..., D]`."""
        mean = tf.convert_to_tensor(self.mean)
        noise = (tf.cast(action, mean.dtype) - mean) * tf.exp(-self.log_std)
        return tf.reduce_sum(-tf.square(noise) / 2 - self.log_std - math.log(2 * math.pi) / 2, axis=-1)

    def entropy(self) -> tf.Tensor:
        """In nats, `[...]`."""
        return tf.reduce_sum(self.log_std + math.log(2 * math.pi * math.e) / 2, axis=-1)


class SquashedGaussian(NamedTuple):
    """tanh of a Gaussian with independent components: actions in (-1, 1)^D, over any leading axes `[...]`.

    Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", appendix C.  Densities are of actions in this
    cube; those in an environment's units differ by a constant (`action_bounds.ActionBounds.log_volume`).
    """

    mean: Any
    """`[..., D]`, of the Gaussian."""
    log_std: Any
    """`[..., D]`, logarithm of the Gaussian's standard deviation."""

    def sample(self, noise: Any) -> tf.Tensor:
        """Actions `[..., D]` from standard normal noise `[..., D]`, differentiable in the parameters."""
        return tf.tanh(self._gaussian(noise))

    def sample_and_log_prob(self, noise: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Actions `[..., D]` from standard normal noise `[..., D]`, and their log-probability `[...]`.

        Exact where `log_prob` of the same actions is not: close to -1 and 1 the tanh loses digits.
        """
        gaussian = self._gaussian(noise)
        return tf.tanh(gaussian), self._log_prob(gaussian, tf.cast(noise, gaussian.dtype))

    def mode(self) -> tf.Tensor:
        """The action `[..., D]` without noise, the median of each component."""
        return tf.tanh(self.mean)

    def log_prob(self, action: Any) -> tf.Tensor:
        """The log-density `[...]` of actions `[..., D]`; those at the border are taken as the nearest inside."""
        mean = tf.convert_to_tensor(self.mean)
        inside = 1 - mean.dtype.as_numpy_dtype(np.finfo(mean.dtype.as_numpy_dtype).eps)
        gaussian = tf.atanh(tf.clip_by_value(tf.cast(action, mean.dtype), -inside, inside))
        return self._log_prob(gaussian, (gaussian - mean) * tf.exp(-self.log_std))

    def _gaussian(self, noise: Any) -> tf.Tensor:
        mean = tf.convert_to_tensor(self.mean)
        return mean + tf.exp(self.log_std) * tf.cast(noise, mean.dtype)

    def _log_prob(self, gaussian: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        log_density = -tf.square(noise) / 2 - self.log_std - math.log(2 * math.pi) / 2
        # log(1 - tanh(u)^2), in a form that neither overflows nor loses digits for any u.
        log_slope = 2 * (math.log(2) - gaussian - tf.math.softplus(-2 * gaussian))
        return tf.reduce_sum(log_density - log_slope, axis=-1)
