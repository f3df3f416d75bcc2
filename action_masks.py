"""Action masks: the part `action_mask` of an observation says which discrete actions may be taken.

As in PettingZoo and RLlib, the observation is a dictionary with the key `action_mask`.  The mask is a vector of 0 and
1, or of bools, with one element for each value of the action.  If the action has several discrete parts, it is the
concatenation of their vectors, or a nest of them (as in Gymnasium's `MultiDiscrete.sample`), in the order of
`tree.flatten`.  The network sees the rest of the observation: its part `observation` if there is no other part, and
otherwise all parts but the mask.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs as dm_specs

from .data import Nest
from .errors import CallboardError
from .specs import EnvironmentSpec, MultiDiscreteArray, describe

MASK = "action_mask"
_REST = "observation"


def has_mask(observation: Nest) -> bool:
    """Returns whether an observation, or its spec, contains an action mask."""
    return isinstance(observation, Mapping) and MASK in observation


def without_mask(observation: Nest) -> Nest:
    """Returns an observation, or its spec, without its action mask, as the network sees it."""
    if not has_mask(observation):
        return observation
    rest = {key: part for key, part in observation.items() if key != MASK}
    return rest[_REST] if set(rest) == {_REST} else rest


def visible_spec(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Returns the environment's spec as the network sees it, without an action mask."""
    return spec._replace(observation=without_mask(spec.observation)) if has_mask(spec.observation) else spec


def choice_sizes(action: Nest) -> np.ndarray:
    """Returns the number of values of each discrete choice of an action, int64 `[K]`, in the order of `tree.flatten`.

    Args:
      action: nest of dm_env specs; those that are not discrete have no choices.
    """
    discrete = [leaf for leaf in tree.flatten(action) if isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray)]
    return np.concatenate([np.zeros(0, np.int64), *(np.ravel(leaf.num_values) for leaf in discrete)]).astype(np.int64)


def check_mask(spec: EnvironmentSpec) -> None:
    """Checks that the action mask of an environment's observations, if there is one, fits its actions.

    Raises:
      CallboardError: it does not fit, or there is nothing else in the observation.
    """
    if not has_mask(spec.observation):
        return
    parts = tree.flatten(spec.observation[MASK])
    sizes = choice_sizes(spec.action)
    wrong = [part for part in parts if len(part.shape) != 1]
    if wrong:
        raise CallboardError(f"'{MASK}' has the shape {wrong[0].shape}: make it a vector, or one vector per choice")
    if not len(sizes):
        raise CallboardError(
            f"'{MASK}' is for discrete actions, but the environment's action is {describe(spec.action)}: rename the "
            "part if it is something else"
        )
    found = sum(part.shape[0] for part in parts)
    if found != sizes.sum() or (len(parts) > 1 and [part.shape[0] for part in parts] != sizes.tolist()):
        shapes = " + ".join(str(part.shape[0]) for part in parts)
        raise CallboardError(
            f"'{MASK}' has {shapes} elements, but the environment's action has {' + '.join(map(str, sizes))} values"
        )
    if not tree.flatten(without_mask(spec.observation)):
        raise CallboardError(f"the observation has nothing but an '{MASK}': add what the agent is to see")


def flat_mask(observation: Nest) -> np.ndarray:
    """Returns the mask of observations, arrays `[B, ...]`, as one array `[B, N]`."""
    return np.concatenate(tree.flatten(observation[MASK]), axis=-1)


def with_legal_choices(spec: EnvironmentSpec, actions: Nest, mask: Nest, rows: np.ndarray) -> Nest:
    """Returns actions whose choices are, in some rows of a batch, the first ones that a mask allows.

    Args:
      spec: the environment's spec.
      actions: arrays `[B, ...]`.
      mask: the mask, or a nest of masks, `[B, N]`.
      rows: which rows to replace, bool `[B]`.
    """
    allowed = flat_mask({MASK: mask}) != 0
    choices = iter(np.split(allowed[rows], np.cumsum(choice_sizes(spec.action))[:-1], axis=-1))
    leaves = []
    for leaf, values in zip(tree.flatten(spec.action), tree.flatten(actions), strict=True):
        values = np.array(values)
        if isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray):
            first = [next(choices).argmax(axis=-1) for _ in range(np.size(leaf.num_values))]
            values[rows] = np.stack(first, axis=-1).reshape(values[rows].shape)
        leaves.append(values)
    return tree.unflatten_as(spec.action, leaves)


def illegal_rows(spec: EnvironmentSpec, observation: Nest) -> np.ndarray:
    """Returns the rows of a batch in which a choice has no value left, int64 `[N]`.

    Args:
      spec: the environment's spec, which has a mask.
      observation: arrays `[B, ...]`.

    Raises:
      CallboardError: a mask has other values than 0 and 1.
    """
    mask = flat_mask(observation)
    allowed = mask != 0
    if mask.dtype != bool and not (mask[allowed] == 1).all():
        value = mask[allowed & (mask != 1)][0]
        raise CallboardError(
            f"an action mask contains {value}: let it be 1 where an action is allowed, and 0 elsewhere"
        )
    sizes = choice_sizes(spec.action)
    return np.flatnonzero(~np.logical_or.reduceat(allowed, np.cumsum(sizes) - sizes, axis=-1).all(axis=-1))


def check_legal(spec: EnvironmentSpec, observation: Nest, last: bool = False) -> None:
    """Checks that actions can be taken after observations, arrays `[B, ...]`, that somebody else gives.

    Args:
      spec: the environment's spec.
      observation: the observations.
      last: whether their episodes end with them, so that their masks may allow nothing.

    Raises:
      CallboardError: they have a mask that allows nothing, or that has other values than 0 and 1.
    """
    if has_mask(spec.observation) and illegal_rows(spec, observation).size and not last:
        raise CallboardError(
            f"the '{MASK}' allows nothing: end the episode with this observation, or allow an action that does nothing"
        )


class ForbiddenAction(NamedTuple):
    """An action that its mask forbids."""

    row: int
    """Its row in the batch."""
    path: tuple[str, ...]
    """Names of the parts of the action that contain the choice."""
    value: Any
    """The value or values of that part, as the environment numbers them."""


def forbidden_action(spec: EnvironmentSpec, observation: Nest, action: Nest) -> ForbiddenAction | None:
    """Returns the first action of a batch that its mask forbids; None if there is none, or no mask.

    Args:
      spec: the environment's spec.
      observation: arrays `[B, ...]`, in whose masks every choice has a value left.
      action: arrays `[B, ...]` of choices that are among their values.
    """
    if not has_mask(spec.observation):
        return None
    found = tree.flatten_with_path(spec.action)
    places = [at for at, (_, leaf) in enumerate(found) if isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray)]
    arrays = tree.flatten(action)
    sizes = choice_sizes(spec.action)
    chosen = np.concatenate([np.reshape(arrays[at], (len(arrays[at]), -1)) for at in places], axis=-1)
    legal = np.take_along_axis(flat_mask(observation) != 0, np.cumsum(sizes) - sizes + chosen, axis=-1)
    if legal.all():
        return None
    row, column = np.argwhere(~legal)[0].tolist()
    place = np.repeat(places, [np.size(found[at][1].num_values) for at in places])[column]
    start = None if spec.encoding is None else tree.flatten(spec.encoding.action)[place].start
    value = arrays[place][row] + (0 if start is None else start)
    return ForbiddenAction(row, tuple(map(str, found[place][0])), np.asarray(value).tolist())
