"""n-step returns (Sutton and Barto 2018, chapter 7; Horgan et al. 2018, section 3.1).

The return from observation t adds up the rewards of up to n transitions.  The sum ends early

- after a transition whose discount is 0: the episode terminated, and nothing is bootstrapped;
- before a transition that is not valid (`valid_transitions`): a time limit, or a lost final observation;
- at the last observation of the window or sequence,

and bootstraps from the last observation that it reaches.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ...data import Nest
from ...networks.gathers import gather_nd
from ...transitions import reached_transitions
from .shapes import check_ranks, check_same_shape

_INDEX = tf.int64
"""int32 would be added up on the CPU, also where there is a GPU."""


class NStep(NamedTuple):
    """Returns of up to n steps, with leading axes `[...]`: `[B]` for windows, `[T, B]` for sequences."""

    returns: Any
    """`[...]`, the discounted sum of rewards."""
    discount: Any
    """`[...]`, the product of the discounts, by which the value at `index` is multiplied."""
    index: Any
    """int64 `[...]`, position in the window or sequence of the observation to bootstrap from.  Where `discount` is 0
    it is in range but has no meaning."""
    valid: Any
    """bool `[...]`, whether the sum contains any transition.  If not, nothing is learned from it."""


def n_step_window(r_t: Any, discount_t: Any, valid_t: Any) -> NStep:
    """Computes the return from the first observation of a window of n transitions.

    Args:
      r_t: `[n, B]`, the rewards that followed the actions; n must be known.
      discount_t: `[n, B]`, gamma times the environment's discounts that followed.
      valid_t: bool `[n, B]`, from `valid_transitions` over the window's n + 1 observations.

    Returns:
      `NStep` over `[B]`, in the dtype of `r_t`, with `index` in 0..n.

    Raises:
      ValueError: if shapes do not match.
    """
    r_t, discount_t, valid_t = _checked(r_t, discount_t, valid_t)
    lengths, steps = _add_up(tf.unstack(r_t), tf.unstack(discount_t), tf.unstack(valid_t))
    return steps._replace(index=lengths)


def n_step_sequence(r_t: Any, discount_t: Any, valid_t: Any, n: int) -> NStep:
    """Computes the returns of up to n steps from every observation of a sequence except the last.

    Args:
      r_t: `[T, B]`, the rewards that followed the actions; T must be known.
      discount_t: `[T, B]`, gamma times the environment's discounts that followed.
      valid_t: bool `[T, B]`, from `valid_transitions` over the T + 1 observations.
      n: the largest number of steps, at least 1.

    Returns:
      `NStep` over `[T, B]`, in the dtype of `r_t`, with `index` in 0..T.

    Raises:
      ValueError: if shapes do not match.
    """
    if n < 1:
        raise ValueError(f"the number of steps must be at least 1, not {n}")
    r_t, discount_t, valid_t = _checked(r_t, discount_t, valid_t)
    length = r_t.shape[0]
    # Shifting fills in False: no transition after the end of the sequence is valid.
    shifts = range(min(n, length))
    lengths, steps = _add_up(*([_shifted(x_t, shift) for shift in shifts] for x_t in (r_t, discount_t, valid_t)))
    return steps._replace(index=tf.range(length, dtype=lengths.dtype)[:, tf.newaxis] + lengths)


def take_along_time(x: Nest, index: Any) -> Nest:
    """Gathers one or several timesteps per batch element: x[index[..., b], b].

    Args:
      x: nest of `[T, B, ...]`.
      index: int64 `[B]` or `[S, B]`, in 0..T-1, such as `NStep.index`.

    Returns:
      Nest of `[B, ...]` or `[S, B, ...]`.
    """
    index = tf.convert_to_tensor(index)
    batch = tf.broadcast_to(tf.range(tf.shape(index)[-1], dtype=index.dtype), tf.shape(index))
    where = tf.stack([index, batch], axis=-1)
    return tree.map_structure(lambda leaf: gather_nd(leaf, where), x)


@tf.autograph.experimental.do_not_convert
def _add_up(rewards: Sequence[Any], discounts: Sequence[Any], valid: Sequence[Any]) -> tuple[tf.Tensor, NStep]:
    """Adds up consecutive transitions; returns the number of steps in each sum, and `NStep` without its index."""
    zeros = tf.zeros_like(rewards[0])
    returns, product, lengths = zeros, tf.ones_like(zeros), tf.zeros_like(zeros, _INDEX)
    for reward, discount, reached in zip(rewards, discounts, reached_transitions(valid, discounts), strict=True):
        # Select instead of multiplying by 0: transitions past the end may hold arbitrary values.
        returns += tf.where(reached, product * reward, zeros)
        product = tf.where(reached, product * discount, product)
        lengths += tf.cast(reached, _INDEX)
    return lengths, NStep(returns, product, lengths, valid[0])


def _shifted(x_t: tf.Tensor, shift: int) -> tf.Tensor:
    """Returns x_{t + shift}, with zeros or False past the end."""
    return tf.concat([x_t[shift:], tf.zeros_like(x_t[:shift])], axis=0)


def _checked(r_t: Any, discount_t: Any, valid_t: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    r_t, valid_t = tf.convert_to_tensor(r_t), tf.convert_to_tensor(valid_t)
    discount_t = tf.cast(discount_t, r_t.dtype)
    check_ranks(2, r_t=r_t, discount_t=discount_t, valid_t=valid_t)
    check_same_shape(r_t=r_t, discount_t=discount_t, valid_t=valid_t)
    if not r_t.shape[0]:
        raise ValueError("the number of transitions must be known when the function is traced, and at least 1")
    return r_t, discount_t, valid_t
