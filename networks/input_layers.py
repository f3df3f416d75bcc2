"""Keeps the outputs of a network as they are when the statistics that normalize its observations move.

An observation x enters a network as z = (x - μ) / σ.  When a policy improves, the observations that it sees change, and
μ and σ with them: a policy that moves a cart further makes the deviation of its position larger, hence the network less
sensitive to it, hence the cart moves further.  Policies that had been learned were lost in this way.  The layers that
take z make up for the move, as the output of PopArt does on the other side (van Hasselt et al. 2016,
https://arxiv.org/abs/1602.07714, proposition 1):

    z = z' σ'/σ + (μ' - μ)/σ,  so  W' = W diag(σ'/σ),  b' = b + W (μ' - μ)/σ.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..action_masks import without_mask
from .actor_critics.separate import SeparateNetworks
from .heads.composed_heads import ComposedValueHead
from .heads.heads import DuelingQHead, GaussianValueHead, MLPHead, PolicyValueHead
from .heads.popart import PolicyWithPopArt, PopArtValueHead
from .network import Network
from .normalization import Statistics, WithoutPart
from .recurrent import FeedForwardCore
from .torsos.flatten import feature_size
from .torsos.torsos import MaskHidingTorso, MLPTorso

_MOST = 2.0
"""Factor of a deviation, or deviations of a mean, above which a move shows that the statistics meant nothing before."""
_HEADS = (
    ComposedValueHead,
    DuelingQHead,
    GaussianValueHead,
    MLPHead,
    PolicyValueHead,
    PolicyWithPopArt,
    PopArtValueHead,
)


def keep_outputs(network: Network, before: Statistics, after: Statistics) -> None:
    """Changes the layers that take normalized observations, so that the network's outputs stay as they were.

    It does so for MLPs of this library, wherever they are the first layers: in the torso, or in the head if neither
    torso nor core have layers.  Features that were nearly constant before, layers that the user has frozen, and
    observations beyond the normalizer's ten deviations make an exception.

    Args:
      network: the network, whose normalizer has the statistics `after`.
      before: the normalizer's statistics before they moved.
      after: those of now.
    """
    for part in (network.policy, network.value) if isinstance(network, SeparateNetworks) else (network,):
        layers = _input_layers(part)
        if not layers:
            continue
        ratio, shift = _move(part, before, after)
        for layer in layers:
            kernel = tf.cast(layer.kernel, tf.float64)
            layer.bias.assign_add(tf.cast(tf.linalg.matvec(kernel, shift, transpose_a=True), layer.bias.dtype))
            layer.kernel.assign(tf.cast(kernel * ratio[:, np.newaxis], layer.kernel.dtype))


def _input_layers(network: Network) -> list[tf.keras.layers.Dense]:
    """Returns the trained dense layers whose input is the normalized observation."""
    torso = network.torso
    while isinstance(torso, MaskHidingTorso):
        torso = torso.torso
    if not isinstance(torso, MLPTorso):
        return []
    first: Iterable[Any] = torso.hidden[:1]
    if not first and type(network.core) is FeedForwardCore and not network.previous_inputs:
        if isinstance(network.head, _HEADS):
            parts = (network.head, *network.head.submodules)
            first = [part.hidden[0] for part in parts if isinstance(part, MLPHead | PopArtValueHead) and part.hidden]
    return [layer for layer in first if type(layer) is tf.keras.layers.Dense and layer.trainable]


def _move(network: Network, before: Statistics, after: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Returns σ'/σ and (μ' - μ)/σ for each feature of a network's flat observation."""
    leaves: list[np.ndarray] = []
    for leaf, old, new in zip(tree.flatten(network.spec.observation), before, after, strict=True):
        if old is None or new is None:
            leaves.append(np.stack([np.ones(feature_size(leaf)), np.zeros(feature_size(leaf))]))
            continue
        ratio, shift = new.deviation / old.deviation, (new.mean - old.mean) / old.deviation
        means_something = (np.maximum(ratio, 1 / ratio) <= _MOST) & (np.abs(shift) <= _MOST)
        kept = np.where(means_something, ratio, 1.0), np.where(means_something, shift, 0.0)
        leaves.append(np.stack([part.reshape(-1) for part in kept]))
    seen = without_mask(tree.unflatten_as(network.spec.observation, leaves))
    if isinstance(network.normalizer, WithoutPart):
        seen = network.normalizer.without(seen)
    ratio, shift = np.concatenate(tree.flatten(seen), axis=1)
    return ratio, shift
