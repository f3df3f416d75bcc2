"""The values of the actions of a team's members, from one network for all of them or one for each."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ...action_masks import MASK
from ...data import Nest
from ...specs import EnvironmentSpec
from ..gathers import stack_leaves
from ..network import Inputs, Network
from .team import Team


class TeamInputs(NamedTuple):
    """Inputs of the network, with leading axes `[B]` for a step and `[T, B]` for an unroll."""

    observation: Nest
    """The team's observation, leaves `[..., *shape]`."""
    previous_action: Any
    """int32 `[..., M]`, the members' actions that led to the observation."""
    begins: Any
    """bool `[..., M]`, whether a member's observation is the first of an episode, or after an absence.  Its memory is
    reset, and there is no previous action."""


class TeamNetwork(tf.Module):
    """Maps each member's observation, its previous action and its index to the values of its actions.

    Members that share a network differ by the index alone (Rashid et al. 2018, section 4).
    """

    def __init__(
        self,
        team: Team,
        make_network: Callable[[EnvironmentSpec], Network],
        shared: bool = True,
        previous_actions: bool = True,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          team: the team.
          make_network: builds a member's network with outputs `[N, A]`, for the spec of its inputs and actions.
          shared: whether there is one network for all members.
          previous_actions: whether networks see their member's previous action.
          name: name of the module.
        """
        super().__init__(name)
        self._team = team
        self._previous_actions = previous_actions
        self._shared = shared or len(team.members) == 1
        self._sees_index = shared and len(team.members) > 1
        names = ("shared",) if self._shared else team.members
        specs = network_specs(team, shared, previous_actions)
        self.networks = {name: make_network(spec) for name, spec in zip(names, specs, strict=True)}
        """The network of all members, as `shared`, or that of each by its name."""

    def initial_state(self, batch_size: Any) -> Nest:
        """Returns the state at the start of an episode, leaves `[B, M, ...]`."""
        members = len(self._team.members)
        state = next(iter(self.networks.values())).initial_state(batch_size * members)
        return tree.map_structure(lambda leaf: tf.reshape(leaf, (batch_size, members, *leaf.shape[1:])), state)

    def step(self, inputs: TeamInputs, state: Nest) -> tuple[tf.Tensor, Nest]:
        """Returns the values `[B, M, A]` of all members' actions, and the state for the next observation."""
        return self._apply("step", inputs, state, ())

    def unroll(self, inputs: TeamInputs, state: Nest, training: bool = False) -> tuple[tf.Tensor, Nest]:
        """Returns the values `[T, B, M, A]` of a sequence, and the state for the observation after the last.

        Args:
          inputs: leaves `[T, B, ...]`.
          state: leaves `[B, M, ...]`, the state for the first observation.
          training: as in `Network.unroll`.
        """
        return self._apply("unroll", inputs, state, (training,))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains."""
        return tuple(variable for network in self.networks.values() for variable in network.trainable_variables)

    def regularization_loss(self) -> Any:
        """As in `Network`: the sum over the networks."""
        return sum(network.regularization_loss() for network in self.networks.values())

    def _apply(self, method: str, inputs: TeamInputs, state: Nest, arguments: Sequence[Any]) -> tuple[tf.Tensor, Nest]:
        axis = inputs.begins.shape.rank - 1
        by_member = self._by_member(inputs)
        if self._shared:
            (network,), members = self.networks.values(), len(self._team.members)
            merged = tree.map_structure(lambda *leaves: _merged(stack_leaves(leaves, axis), axis), *by_member)
            states = tree.map_structure(lambda leaf: _merged(leaf, 1), state)
            begins = _merged(inputs.begins, axis)
            q, states = getattr(network, method)(Inputs(merged), states, begins, *arguments)
            return _parted(q, axis, members), tree.map_structure(lambda leaf: _parted(leaf, 1, members), states)

        def run_own(index: int, network: Network) -> tuple[tf.Tensor, Nest]:
            own = tree.map_structure(lambda leaf: leaf[:, index], state)
            return getattr(network, method)(Inputs(by_member[index]), own, inputs.begins[..., index], *arguments)

        outputs, after = zip(*(run_own(*item) for item in enumerate(self.networks.values())), strict=True)
        return tf.stack(outputs, axis), tree.map_structure(lambda *leaves: tf.stack(leaves, axis=1), *after)

    def _by_member(self, inputs: TeamInputs) -> list[Nest]:
        # int32, and what is unstacked, would be taken apart on the CPU, also where there is a GPU.
        before = tf.cast(inputs.previous_action, tf.int64)
        before = tf.where(inputs.begins, tf.constant(-1, tf.int64), before)
        previous = [before[..., index] for index in range(len(self._team.members))]
        legal = tf.unstack(self._team.legal(inputs.observation), axis=-2)
        parts = []
        for index, observation in enumerate(self._team.observations(inputs.observation)):
            part = {"observation": observation, MASK: legal[index]}
            if self._sees_index:
                part["member"] = tf.fill(tf.shape(previous[index]), index)
            if self._previous_actions:
                # No action is -1, whose one-hot encoding is zeros.
                part["previous_action"] = previous[index]
            parts.append(part)
        return parts


def network_specs(team: Team, shared: bool, previous_actions: bool) -> list[EnvironmentSpec]:
    """Returns the spec of the inputs and actions of each network: one for all members, or one for each.

    Args:
      team: the team.
      shared: whether there is one network for all members.
      previous_actions: whether networks see their member's previous action.
    """
    members, actions = len(team.members), dm_specs.DiscreteArray(team.num_actions)
    specs = []
    for observation in team.observation_specs[: 1 if shared else members]:
        inputs = {"observation": observation, MASK: dm_specs.Array((team.num_actions,), np.bool_)}
        if shared and members > 1:
            inputs["member"] = dm_specs.DiscreteArray(members)
        if previous_actions:
            inputs["previous_action"] = actions
        specs.append(EnvironmentSpec(inputs, actions))
    return specs


def _merged(tensor: Any, axis: int) -> tf.Tensor:
    """Merges the members' axis of `[..., B, M, *rest]` into that of the batch before it."""
    tensor = tf.convert_to_tensor(tensor)
    shape = tf.shape(tensor)
    size = tf.concat([shape[: axis - 1], [shape[axis - 1] * shape[axis]], shape[axis + 1 :]], 0)
    merged = tf.reshape(tensor, size)
    known = tensor.shape.as_list()
    batch = None if known[axis - 1] is None else known[axis - 1] * known[axis]
    merged.set_shape((*known[: axis - 1], batch, *known[axis + 1 :]))
    return merged


def _parted(tensor: tf.Tensor, axis: int, members: int) -> tf.Tensor:
    """Does the reverse of `_merged`."""
    shape, known = tf.shape(tensor), tensor.shape.as_list()
    parted = tf.reshape(tensor, tf.concat([shape[: axis - 1], [-1, members], shape[axis:]], 0))
    batch = None if known[axis - 1] is None else known[axis - 1] // members
    parted.set_shape((*known[: axis - 1], batch, members, *known[axis:]))
    return parted
