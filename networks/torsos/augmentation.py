"""Augmentation of images: random shifts (Yarats, Kostrikov and Fergus 2021, https://arxiv.org/abs/2004.13649)."""

from typing import Any

import tensorflow as tf
import tree

from ...data import Nest
from ...specs import is_image
from .. import stateless_random
from ..gathers import gather
from ..random_streams import Stream


def random_shift(images: Any, seed: Any, index: Any, pixels: int) -> tf.Tensor:
    """Shifts each image by up to `pixels` in both directions; its edges are repeated.

    The same as to pad an image by `pixels` with its edges, and to crop it at random.

    Args:
      images: `[B, height, width, channels]`; stacked frames are shifted alike.
      seed: int64 `[2]`.
      index: int32 `[B]`, index of each image in the global batch.
      pixels: the largest shift.
    """
    images = tf.convert_to_tensor(images)
    height, width, channels = images.shape[1:]
    uniform = stateless_random.uniform(seed, Stream.SHIFT, index, (2,), tf.float64)
    offsets = tf.cast(uniform * (2 * pixels + 1), tf.int64) - pixels
    rows, columns = (
        tf.clip_by_value(tf.range(size, dtype=tf.int64) + offsets[:, axis, tf.newaxis], 0, size - 1)
        for axis, size in enumerate((height, width))
    )
    # One gather of pixels by their index in the batch takes a quarter of the time of a gather along each axis.
    rows += height * tf.range(tf.shape(images, tf.int64)[0])[:, tf.newaxis]
    return gather(tf.reshape(images, (-1, channels)), width * rows[:, :, tf.newaxis] + columns[:, tf.newaxis])


def shifted_observations(spec: Nest, observation: Nest, seed: Any, index: Any, pixels: int) -> Nest:
    """Returns observations `[B, ...]` with the images among them shifted, see `random_shift`."""
    leaves = [
        random_shift(leaf, seed, index, pixels) if is_image(leaf_spec) else leaf
        for leaf_spec, leaf in zip(tree.flatten(spec), tree.flatten(observation), strict=True)
    ]
    return tree.unflatten_as(observation, leaves)
