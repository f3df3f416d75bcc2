"""Keeps the outputs of a network as they are when the statistics that normalize its observations move.

An observation x enters a network as z = (x - μ) / σ.  When a policy improves, the observations that it sees change, and
μ and σ with them: a policy that moves a cart further makes the deviation of its position larger, hence the network less
sensitive to it, hence the cart moves further.  Policies that had been learned were lost in this way.  The layers that
take z make up for the move, as the output of PopArt does on the other side (van Hasselt et al. 2016,
https://arxiv.org/abs/1602.07714, proposition 1):

    z = z' σ'/σ + (μ' - μ)/σ,  so  W' = W diag(σ'/σ),  b' = b + W (μ' - μ)/σ.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..action_masks import without_mask
from ..data import Nest
from .actor_critics.separate import SeparateNetworks
from .heads.branching_heads import BranchingQHead
from .heads.composed_heads import AutoregressiveValueHead, ComposedValueHead
from .heads.heads import DistributionalQHead, DuelingQHead, GaussianValueHead, MLPHead, PolicyValueHead
from .heads.popart import PolicyWithPopArt, PopArtValueHead
from .heads.selected_heads import SelectedHeads
from .network import Network
from .normalization import Move, WithoutPart
from .precision import MixedPrecisionTorso
from .recurrent import FeedForwardCore
from .torsos.flatten import feature_size
from .torsos.torsos import MaskHidingTorso, MLPTorso, ObservationTorso, PartsTorso

_MOST = 2.0
"""Factor of a deviation, or deviations of a mean, above which a move shows that the statistics meant nothing before."""
_HEADS = (
    AutoregressiveValueHead,
    BranchingQHead,
    ComposedValueHead,
    DistributionalQHead,
    DuelingQHead,
    GaussianValueHead,
    MLPHead,
    PolicyValueHead,
    PolicyWithPopArt,
    PopArtValueHead,
)


class InputLayer(NamedTuple):
    """A layer that takes normalized observations, perhaps beside other features."""

    kernel: tf.Variable
    """`[R, units]`."""
    bias: tf.Variable
    """`[units]`, or `[2, units]` if the layer adds the first row to this product."""
    features: np.ndarray
    """int, at most `[R]`: the feature of the flat observation that a row of the kernel takes, -1 for none."""


def keep_outputs(network: Network, trained: Sequence[tf.Variable]) -> None:
    """Lets the layers that take normalized observations change with every move of the statistics from now on.

    The network's outputs thus stay as they were.  This holds for the MLPs of this library, and for the cores `lstm`,
    `gru` and `gtrxl`, where they are the first layers.  Features that were nearly constant before, images of floats,
    parts of the user's own, noisy layers, batch normalization, and observations beyond the normalizer's ten deviations
    make an exception: their part of the outputs moves with the statistics.

    Args:
      network: the network, which a learner trains.
      trained: the variables that may change; a layer of which one may not stays as it is.
    """
    normalizer = network.normalizer
    if normalizer is None:
        return
    parts = (network.policy, network.value) if isinstance(network, SeparateNetworks) else (network,)
    free = set(map(id, trained))
    layers = [layer for part in parts for layer in input_layers(part) if {id(layer.kernel), id(layer.bias)} <= free]
    follow = functools.partial(_make_up, layers, tree.flatten(network.spec.observation))
    normalizer.follow = follow if layers else None


def input_layers(network: Network) -> list[InputLayer]:
    """Returns the layers of a network that take normalized observations."""
    places, end = [], 0
    for leaf in tree.flatten(network.spec.observation):
        places.append(np.arange(end, end := end + feature_size(leaf)))
    seen = tree.unflatten_as(network.spec.observation, places)
    if isinstance(network.normalizer, WithoutPart):
        seen = network.normalizer.without(seen)
    found: list[InputLayer] = []
    features = _passed_on(network.torso, seen, found)
    if features is None or not np.any(features >= 0):
        return found
    if type(network.core) is not FeedForwardCore:
        if (weights := getattr(network.core, "input_weights", None)) is None:
            return found
        kernel, bias = weights
        return [*found, InputLayer(kernel, bias, features)]
    return [*found, *(InputLayer(*weights, features) for weights in _first_weights(network.head))]


def _passed_on(torso: Any, places: Nest, found: list[InputLayer]) -> np.ndarray | None:
    """Adds a torso's input layers to `found`, and returns which features of the observation its own features are.

    Args:
      torso: the torso.
      places: for each leaf of what it sees, the positions of its features in the flat observation.
      found: the layers found so far.

    Returns:
      int `[F]`, -1 for features that are computed; None if that is not known.
    """
    if isinstance(torso, MaskHidingTorso):
        return _passed_on(torso.torso, without_mask(places), found)
    if isinstance(torso, MixedPrecisionTorso):
        return _passed_on(torso.torso, places, found)
    if isinstance(torso, MLPTorso):
        flat = np.concatenate(tree.flatten(places))
        if not torso.hidden:
            return flat
        found.extend(InputLayer(*weights, flat) for weights in _dense_weights(torso.hidden[0]))
        return None
    if isinstance(torso, ObservationTorso | PartsTorso):
        features = []
        for (inner, selected), size in zip(torso.parts(places), torso.sizes, strict=True):
            passed = _passed_on(inner, selected, found)
            features.append(np.full(size, -1) if passed is None else passed)
        return np.concatenate(features)
    return None


def _first_weights(head: Any) -> list[tuple[tf.Variable, tf.Variable]]:
    """Returns kernel and bias of each layer that takes a head's features."""
    if isinstance(head, SelectedHeads):
        return [weights for one in head.heads for weights in _first_weights(one)]
    if not isinstance(head, _HEADS):
        return []
    mlps = [part for part in (head, *head.submodules) if isinstance(part, MLPHead | PopArtValueHead)]
    return [weights for mlp in mlps for weights in (_dense_weights(mlp.hidden[0]) if mlp.hidden else [mlp.weights])]


def _dense_weights(layer: tf.keras.layers.Layer) -> list[tuple[tf.Variable, tf.Variable]]:
    known = type(layer) is tf.keras.layers.Dense and layer.trainable
    return [(layer.kernel, layer.bias)] if known else []


def _make_up(layers: Sequence[InputLayer], leaves: Sequence[Any], moves: Sequence[Move | None]) -> None:
    """Changes layers for a move of the statistics of an observation's leaves; called in every replica."""
    ratios, shifts = [], []
    for leaf, move in zip(leaves, moves, strict=True):
        ratio, shift = Move(*np.eye(2)[:, :1].repeat(feature_size(leaf), 1)) if move is None else move
        ratio, shift = tf.reshape(ratio, [-1]), tf.reshape(shift, [-1])
        means_something = (tf.maximum(ratio, 1 / ratio) <= _MOST) & (tf.abs(shift) <= _MOST)
        ratios.append(tf.where(means_something, ratio, tf.ones_like(ratio)))
        shifts.append(tf.where(means_something, shift, tf.zeros_like(shift)))
    # The last element is that of features that do not move.
    ratio, shift = (tf.concat([*parts, [last]], axis=0) for parts, last in ((ratios, 1.0), (shifts, 0.0)))
    variables, values = [], []
    for layer in layers:
        rows = np.pad(layer.features, (0, layer.kernel.shape[0] - len(layer.features)), constant_values=-1)
        index = np.where(rows < 0, ratio.shape[0] - 1, rows)
        kernel, bias = tf.cast(layer.kernel, tf.float64), tf.cast(layer.bias, tf.float64)
        change = tf.linalg.matvec(kernel, tf.gather(shift, index), transpose_a=True)
        if bias.shape.rank == 2:
            change = tf.stack([change, tf.zeros_like(change)])
        variables += [layer.kernel, layer.bias]
        values += [kernel * tf.gather(ratio, index)[:, tf.newaxis], bias + change]
    values = [tf.cast(value, variable.dtype) for variable, value in zip(variables, values, strict=True)]

    def assign(strategy: tf.distribute.Strategy, *values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            strategy.extended.update(variable, lambda own, new: own.assign(new), args=(value,))

    # All replicas have computed the same, and each assigns its own copy.
    tf.distribute.get_replica_context().merge_call(assign, args=tuple(values))
