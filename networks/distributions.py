"""Action distributions as named tuples of parameters, sampled with explicit seeds or noise."""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .random_streams import Stream, stream_seed


class Categorical(NamedTuple):
    """Categorical distribution over A actions, with any leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalized log-probabilities.  They must be finite: mask an action with a large negative number."""

    def sample(self, seed: Any, dtype: Any = tf.int32, stream: str = Stream.ACTION) -> tf.Tensor:
        """Samples actions `[...]`.

        NaN logits give an arbitrary valid action, whose log-probability is NaN.

        Args:
          seed: int `[2]`; the same seed gives the same actions.  Or int `[K, 2]`: the first axis is split into K equal
            parts and each is sampled with its own seed, as in K separate calls.
          dtype: int32 or int64.
          stream: what the actions are for, see `random_streams`.
        """
        logits, seed = tf.convert_to_tensor(self.logits), stream_seed(seed, stream)

        def draw(part: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return tf.random.stateless_categorical(part[0], num_samples=1, seed=part[1], dtype=tf.int64)

        if seed.shape.rank == 1:
            actions = draw((tf.reshape(logits, (-1, logits.shape[-1])), seed))
        else:
            parts = tf.reshape(logits, (tf.shape(seed)[0], -1, logits.shape[-1]))
            actions = tf.map_fn(draw, (parts, seed), fn_output_signature=tf.TensorSpec((None, 1), tf.int64))
        # For NaN logits TensorFlow returns A, which is not an action and whose log-probability cannot be computed.
        # int32 would be compared and reshaped on the CPU, also where there is a GPU.
        actions = tf.minimum(actions, tf.constant(logits.shape[-1] - 1, tf.int64))
        return tf.cast(tf.reshape(actions, tf.shape(logits)[:-1]), dtype)

    def mode(self, dtype: Any = tf.int32) -> tf.Tensor:
        """Returns the most likely actions `[...]`."""
        return tf.argmax(self.logits, axis=-1, output_type=dtype)

    def log_prob(self, action: Any) -> tf.Tensor:
        """Returns the log-probabilities `[...]` of actions `[...]`."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(action, tf.int64), logits=self.logits)

    def log_probs(self) -> tf.Tensor:
        """Returns the log-probabilities `[..., A]` of all actions."""
        return tf.nn.log_softmax(self.logits)

    def entropy(self) -> tf.Tensor:
        """Returns the entropy `[...]` in nats."""
        log_probs = self.log_probs()
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)

    def kl(self, other: "Categorical") -> tf.Tensor:
        """Returns KL(self || other) `[...]` in nats."""
        log_probs = self.log_probs()
        return tf.reduce_sum(tf.exp(log_probs) * (log_probs - other.log_probs()), axis=-1)


class DiagonalGaussian(NamedTuple):
    """Gaussian with independent components over actions in R^D, with any leading axes `[...]`."""

    mean: Any
    """`[..., D]`."""
    log_std: Any
    """`[..., D]`, logarithm of the standard deviation."""

    def sample(self, noise: Any) -> tf.Tensor:
        """Turns standard normal noise `[..., D]` into actions `[..., D]`."""
        mean = tf.convert_to_tensor(self.mean)
        return mean + tf.exp(self.log_std) * tf.cast(noise, mean.dtype)

    def mode(self) -> tf.Tensor:
        """Returns the most likely actions `[..., D]`."""
        return tf.convert_to_tensor(self.mean)

    def log_prob(self, action: Any) -> tf.Tensor:
        """Returns the log-densities `[...]` of actions `[..., D]`."""
        mean = tf.convert_to_tensor(self.mean)
        noise = (tf.cast(action, mean.dtype) - mean) * tf.exp(-self.log_std)
        return tf.reduce_sum(-tf.square(noise) / 2 - self.log_std - math.log(2 * math.pi) / 2, axis=-1)

    def entropy(self) -> tf.Tensor:
        """Returns the entropy `[...]` in nats."""
        return tf.reduce_sum(self.log_std + math.log(2 * math.pi * math.e) / 2, axis=-1)


class SquashedGaussian(NamedTuple):
    """tanh of a Gaussian with independent components, over actions in (-1, 1)^D, with any leading axes `[...]`.

    Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", appendix C.  Densities are with respect to
    unit actions; in the environment's units they differ by a constant.
    """

    mean: Any
    """`[..., D]`, mean of the Gaussian before tanh."""
    log_std: Any
    """`[..., D]`, logarithm of the Gaussian's standard deviation before tanh."""

    def sample(self, noise: Any) -> tf.Tensor:
        """Turns standard normal noise `[..., D]` into actions `[..., D]`, differentiable in the parameters."""
        return tf.tanh(self._gaussian(noise))

    def sample_and_log_prob(self, noise: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns standard normal noise `[..., D]` into actions `[..., D]` and their log-densities `[...]`.

        More accurate than `log_prob` of the same actions, since tanh loses digits close to -1 and 1.
        """
        gaussian = self._gaussian(noise)
        return tf.tanh(gaussian), self._log_prob(gaussian, tf.cast(noise, gaussian.dtype))

    def mode(self) -> tf.Tensor:
        """Returns the actions `[..., D]` without noise, the median of each component."""
        return tf.tanh(self.mean)

    def log_prob(self, action: Any) -> tf.Tensor:
        """Returns the log-densities `[...]` of actions `[..., D]`; actions at +-1 are first moved just inside."""
        mean = tf.convert_to_tensor(self.mean)
        inside = 1 - mean.dtype.as_numpy_dtype(np.finfo(mean.dtype.as_numpy_dtype).eps)
        gaussian = tf.atanh(tf.clip_by_value(tf.cast(action, mean.dtype), -inside, inside))
        return self._log_prob(gaussian, (gaussian - mean) * tf.exp(-self.log_std))

    def _gaussian(self, noise: Any) -> tf.Tensor:
        mean = tf.convert_to_tensor(self.mean)
        return mean + tf.exp(self.log_std) * tf.cast(noise, mean.dtype)

    def _log_prob(self, gaussian: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        log_density = -tf.square(noise) / 2 - self.log_std - math.log(2 * math.pi) / 2
        # log(1 - tanh(u)^2), in a form that neither overflows nor loses digits at any u.
        log_slope = 2 * (math.log(2) - gaussian - tf.math.softplus(-2 * gaussian))
        return tf.reduce_sum(log_density - log_slope, axis=-1)
