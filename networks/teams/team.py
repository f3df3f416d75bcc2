"""Teams: several agents that are presented as one, with a part of the observation and of the action for each member.

The action of a team is a dictionary with a discrete action for each member.  Its observation is a dictionary with these
keys and others, which may be missing:

- `present`, float32 `[M]`: 1 for each member that takes part at the moment, in the order of the action's keys;
- `state`, an array: what a centralized critic sees, in training alone;
- any others: what all members see.

A member's observation may contain an `action_mask` (see `action_masks`).  An environment with a single discrete action
is a team of one member, which sees the whole observation.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ... import specs
from ...action_masks import check_mask, without_mask
from ...data import Nest
from ...errors import CallboardError
from ...specs import PRESENT, STATE
from ..actions.legal_actions import legal_actions
from ..torsos.flatten import feature_size, flat_features


class Team:
    """The members of a team, and their parts of observations and actions.

    Args:
      spec: the team's spec; see `check_team`.
    """

    def __init__(self, spec: specs.EnvironmentSpec):
        self._spec = spec
        self._alone = isinstance(spec.action, dm_specs.DiscreteArray)
        self.members: tuple[str, ...] = ("",) if self._alone else tuple(spec.action)
        """Names of the M members; empty for the only agent of an environment."""
        self._choices = [spec.action if self._alone else spec.action[member] for member in self.members]
        self._num_actions = [int(choice.num_values) for choice in self._choices]
        self.num_actions = max(self._num_actions)
        """A, the largest number of actions that a member has."""
        known = (*self.members, PRESENT, STATE)
        self._common = [] if self._alone else [part for part in spec.observation if part not in known]

    @property
    def observation_specs(self) -> list[Nest]:
        """Inputs of each member's network: its own observation, without an action mask, and the common observation."""
        return self.observations(self._spec.observation)

    @property
    def has_state(self) -> bool:
        """Whether the observation has a part for a centralized critic alone."""
        return not self._alone and STATE in self._spec.observation

    @property
    def state_size(self) -> int:
        """S, the number of features that `state` returns."""
        return feature_size(self._state_parts(self._spec.observation))

    def observations(self, observation: Nest) -> list[Nest]:
        """Returns what the members see, leaves `[..., *shape]`, without action masks."""
        own = [without_mask(part) for part in self._own(observation)]
        common = {key: observation[key] for key in self._common}
        return [{"own": part, "common": common} for part in own] if common else own

    def present(self, observation: Nest) -> tf.Tensor:
        """Returns which members take part, bool `[..., M]`, for observations `[..., *shape]`."""
        if not self._alone and PRESENT in self._spec.observation:
            return tf.not_equal(observation[PRESENT], 0)
        leaf = tree.flatten(observation)[0]
        leading = len(leaf.shape) - len(tree.flatten(self._spec.observation)[0].shape)
        return tf.ones((*tf.unstack(tf.shape(leaf)[:leading]), len(self.members)), tf.bool)

    def legal(self, observation: Nest) -> tf.Tensor:
        """Returns the members' legal actions, bool `[..., M, A]`; those of an absent member are action 0 alone."""
        present = self.present(observation)[..., tf.newaxis]
        actions = tf.range(self.num_actions)
        by_member = []
        for part, number in zip(self._own(observation), self._num_actions, strict=True):
            allowed = actions < number
            masked = legal_actions(part)
            if masked is not None:
                padding = [[0, 0]] * (masked.shape.rank - 1) + [[0, self.num_actions - number]]
                allowed = tf.pad(masked, padding)
            by_member.append(tf.broadcast_to(allowed, tf.concat([tf.shape(present)[:-2], [self.num_actions]], 0)))
        return tf.where(present, tf.stack(by_member, axis=-2), actions == 0)

    def state(self, observation: Nest, dtype: Any) -> tf.Tensor:
        """Returns features `[N, S]` of the state of observations `[N, *shape]`.

        They are the part `state`, or if there is none, all members' observations and which members are present.
        """
        return flat_features(self._state_parts(self._spec.observation), self._state_parts(observation), dtype)

    def joined(self, actions: tf.Tensor) -> Nest:
        """Returns the team's action, a nest of `[...]`, for the members' actions `[..., M]`."""
        parts = [tf.cast(actions, tf.int64)[..., index] for index in range(len(self.members))]
        parts = [tf.cast(part, choice.dtype) for part, choice in zip(parts, self._choices, strict=True)]
        return parts[0] if self._alone else dict(zip(self.members, parts, strict=True))

    def split(self, action: Nest) -> tf.Tensor:
        """Returns the members' actions, int32 `[..., M]`: the reverse of `joined`."""
        parts = [action] if self._alone else [action[member] for member in self.members]
        return tf.stack([tf.cast(part, tf.int32) for part in parts], axis=-1)

    def _own(self, observation: Nest) -> list[Nest]:
        return [observation] if self._alone else [observation[member] for member in self.members]

    def _state_parts(self, observation: Nest) -> Nest:
        if self.has_state:
            return observation[STATE]
        parts = [without_mask(part) for part in self._own(observation)] + [observation[key] for key in self._common]
        return [*parts, observation[PRESENT]] if not self._alone and PRESENT in self._spec.observation else parts


def check_team(name: str, spec: specs.EnvironmentSpec, shared: bool) -> None:
    """Checks that an environment is that of a team.

    Args:
      name: the agent's name, for messages.
      spec: the environment's spec.
      shared: whether all members have the same network, so that their observations must be alike.

    Raises:
      CallboardError: the action is not a discrete one for each member; the observation lacks a member, or its `present`
        or an action mask does not fit; or members that share a network observe different things.
    """
    if isinstance(spec.action, dm_specs.DiscreteArray):
        return
    is_team = isinstance(spec.action, Mapping) and len(spec.action) > 0
    if not is_team or not all(isinstance(part, dm_specs.DiscreteArray) for part in spec.action.values()):
        raise CallboardError(
            f"{name} needs a dictionary with one discrete action for each member of a team, but the environment's "
            f"action is {specs.describe(spec.action)}"
        )
    parts = spec.observation if isinstance(spec.observation, Mapping) else {}
    missing = [member for member in spec.action if member not in parts]
    if missing:
        raise CallboardError(
            f"{name} needs an observation of each member of the team, and the observation has no part {missing[0]!r}"
        )
    if PRESENT in parts and getattr(parts[PRESENT], "shape", None) != (len(spec.action),):
        raise CallboardError(
            f"'{PRESENT}' needs one element for each of the {len(spec.action)} members of the team, but it is "
            f"{specs.describe(parts[PRESENT])}"
        )
    for member, choice in spec.action.items():
        check_mask(specs.EnvironmentSpec(parts[member], choice))
    first, *rest = spec.action
    for member in rest if shared else ():
        if not same_spec(without_mask(parts[first]), without_mask(parts[member])):
            raise CallboardError(
                f"{first!r} observes {specs.describe(without_mask(parts[first]))} and {member!r} "
                f"{specs.describe(without_mask(parts[member]))}, so they cannot share a network: set "
                "agent.network.shared to false"
            )


def same_spec(one: Nest, other: Nest) -> bool:
    """Returns whether two nests of dm_env specs have the same structure, shapes, dtypes and numbers of choices."""
    try:
        tree.assert_same_structure(one, other, check_types=False)
    except (ValueError, TypeError):
        return False

    def kind(leaf: Any) -> Any:
        return leaf.shape, leaf.dtype, np.asarray(getattr(leaf, "num_values", 0)).tolist()

    return all(kind(a) == kind(b) for a, b in zip(tree.flatten(one), tree.flatten(other), strict=True))
