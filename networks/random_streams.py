"""Streams of stateless random numbers: each use of a seed has one of its own, by its name.

A generator is a function of its seed.  Two uses of one seed would thus get the same numbers: an augmentation and the
noise of an action would depend on each other.  So `stateless_random` and `distributions` take a `Stream` beside the
seed and hash its name into it; an agent or layer outside of the library names streams of its own by strings.
"""

import enum
import hashlib
from typing import Any

import numpy as np
import tensorflow as tf


@enum.unique
class Stream(str, enum.Enum):
    """Uses of random numbers; each has a stream of its own."""

    ACTION = "sampled actions of a policy that acts"
    ACTION_CHOICE = "sampled choices among the parts of such an action"
    ACTION_PART = "one part of such an action, chosen after the parts before it"
    ACTION_NOISE = "exploration noise on deterministic actions"
    UNIFORM_ACTION = "uniform actions until learning begins"
    UNIFORM_CHOICE = "choices among the parts of such an action"
    EPSILON_GREEDY = "whether an action is random, and which"
    LEARNED_ACTION = "actions with which a policy learns"
    TARGET_ACTION = "actions of which targets are made"
    PENALTY_UNIFORM = "uniform actions whose values are kept low"
    PENALTY_ACTION = "actions of a policy whose values are kept low"
    PENALTY_NEXT_ACTION = "actions of the policy at the next observation, likewise"
    NETWORK_PASS = "one of several calls of networks that sample"
    NOISY_LAYER = "noise of one noisy layer"
    WINDOW_TIME = "actions at one of the observations inside of a window"
    DROPOUT = "units of one layer that are zero"
    CRITIC_SUBSET = "critics of whose values a target takes the lowest"
    QUANTILE_FRACTION = "fractions at which quantiles are"
    AUGMENTATION = "one of several augmentations of a batch"
    AUGMENTED_TIME = "the observations of one timestep in an augmentation"
    SHIFT = "random shifts of images"
    MINIBATCH = "order of the sequences in minibatches"


def stream_seed(seed: Any, stream: str, number: int = 0) -> tf.Tensor:
    """Returns the seed of a stream, or of one of several streams with the same name.

    Args:
      seed: int32 or int64 `[2]`, or `[K, 2]` for K equal parts of a batch.
      stream: a `Stream`, or a string for a use outside of the library.
      number: which one, if there are several.

    Returns:
      int64 of the shape of `seed`; different for every seed, stream and number.
    """
    name = stream.value if isinstance(stream, Stream) else stream
    digest = hashlib.blake2b(f"{number} {name}".encode(), digest_size=16).digest()
    key = np.frombuffer(digest, "<u8")
    # Cast via int64, so that a negative seed keeps all its bits.
    words = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    return tf.bitcast(mix(words + key), tf.int64)


def mix(bits: tf.Tensor) -> tf.Tensor:
    """Applies the finalizer of SplitMix64, a bijection of uint64 in which every bit depends on all input bits.

    Steele et al. 2014, "Fast splittable pseudorandom number generators".
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint64(shift))) * np.uint64(factor)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint64(31)))
