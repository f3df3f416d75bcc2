"""Several heads on the same features, one of which a part of the observation selects for each element of a batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ...data import Nest
from ...errors import CallboardError


class SelectedHeads(tf.Module):
    """Heads of agents that share a torso and a core.

    Nothing is learned from an element of a batch by other heads than its own.
    """

    def __init__(self, heads: Sequence[Any], selected_by: str, name: str | None = None) -> None:
        """Creates a module of `heads`, which have the same outputs, for the observation's part `selected_by`."""
        super().__init__(name)
        self.heads = list(heads)
        self.selected_by = selected_by

    @property
    def takes_legal(self) -> bool:
        """Whether the heads take legal actions."""
        return getattr(self.heads[0], "takes_legal", False)

    @property
    def value_variables(self) -> Sequence[tf.Variable]:
        """Trainable variables of the values."""
        return [variable for head in self.heads for variable in getattr(head, "value_variables", ())]

    def __call__(self, features: tf.Tensor, selection: Any, *arguments: Any) -> Any:
        """Maps features to the outputs of the selected heads.

        Args:
          features: `[N, F]`.
          selection: the heads' indices `[N]`, or one-hot `[N, heads]`.
          *arguments: further arguments of the heads.
        """
        index = tf.convert_to_tensor(selection)
        index = tf.argmax(index, axis=-1) if index.shape.rank == 2 else tf.cast(index, tf.int32)
        outputs = [head(features, *arguments) for head in self.heads]
        return tree.map_structure(lambda *leaves: tf.gather(tf.stack(leaves, axis=1), index, batch_dims=1), *outputs)


def make_heads(observation: Nest, heads_by: str | None, make_head: Callable[[], Any]) -> Any:
    """Makes one head, or `SelectedHeads` for the part `heads_by` of an observation, a nest of dm_env specs."""
    if heads_by is None:
        return make_head()
    return SelectedHeads([make_head() for _ in range(_number(observation[heads_by]))], heads_by)


def check_heads(observation: Nest, heads_by: str | None) -> None:
    """Checks that a part of an observation selects heads.

    Args:
      observation: nest of dm_env specs.
      heads_by: key of the part; None for none.

    Raises:
      CallboardError: there is no such part, or it is neither a choice nor a vector.
    """
    if heads_by is None:
        return
    parts = observation if isinstance(observation, Mapping) else {}
    if heads_by not in parts:
        known = f"has the parts {', '.join(map(repr, parts))}" if parts else "is not a dictionary"
        raise CallboardError(
            f"agent.network.heads_by is {heads_by!r}, and the observation {known}: name the part that says which head "
            "to take, such as 'agent_index'"
        )
    part = parts[heads_by]
    if not (isinstance(part, dm_specs.DiscreteArray) or (isinstance(part, dm_specs.Array) and len(part.shape) == 1)):
        raise CallboardError(f"agent.network.heads_by needs a one-hot vector or a choice, and {heads_by!r} is neither")


def _number(part: dm_specs.Array) -> int:
    return int(part.num_values) if isinstance(part, dm_specs.DiscreteArray) else part.shape[0]
