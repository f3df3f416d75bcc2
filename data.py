"""The data that flows between the rooms: timesteps, records, layouts and updates.

Axes: `B` is the batch of environments that one actor steps, `T` is time.  A *nest* is any structure of tuples,
named tuples and dictionaries that `tree` understands, with arrays or tensors as leaves.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Nest = Any


class CallboardError(Exception):
    """A mistake that a user can mend.

    The message is one line that says what is wrong and what would be right.  It is shown without a traceback, and a
    node that raises it is not restarted.
    """


class Timestep(NamedTuple):
    """What a batch of environments shows after a reset or a step: one *timestep*.

    Transition t -> t+1 counts unless `last[t]`, or `first[t+1]` with a discount other than 0 (the episode was cut off
    and its final observation is lost).  Where it does not count, nothing is learned from it.
    """

    observation: Nest
    """Nest of arrays `[B, ...]`, as the environment's spec says."""
    reward: Any
    """float32 `[B]`: the reward of the action just taken; 0 at a reset."""
    discount: Any
    """float32 `[B]`: 0 where that action terminated the episode; 1 otherwise, at a time limit too."""
    first: Any
    """bool `[B]`: this observation begins an episode."""
    last: Any
    """bool `[B]`: this observation ends an episode; the next action is ignored and the next timestep is `first`."""


class Version(NamedTuple):
    """The version of a learner's weights.

    A learner that restarts from a checkpoint goes back in `step`, never in `incarnation`.
    """

    incarnation: int
    step: int


class Record(NamedTuple):
    """What an actor writes for timestep t.  Leaves are arrays `[B, ...]`."""

    observation: Nest
    first: Any
    """bool `[B]`."""
    last: Any
    """bool `[B]`."""
    action: Nest
    reward: Any
    """float32 `[B]`: the reward that *followed* the action."""
    discount: Any
    """float32 `[B]`: the discount that followed the action."""
    extras: Nest
    """What the policy adds: logits, log-probabilities, Q-values, ..."""
    version: Any
    """int32 `[B, 2]`: the `Version` of the weights that chose the action."""


class Layout(NamedTuple):
    """The shape of a run, as an agent needs to know it to lay out replay and learning."""

    spec: Any
    """The environment's `specs.EnvironmentSpec`."""
    envs_per_actor: int
    actors: int
    shards: int
    replicas: int
    """Learner devices, over all learners: the global batch is divided among them."""
    seed: int
    max_steps: int
    """Environment steps after which the run ends."""
    record: Any = None
    """`Record` of `tf.TensorSpec` for one environment (no axis B).  None until the policy has been traced."""
    state: Nest = None
    """`tf.TensorSpec` nest of the policy's recurrent state for one environment, `()` if it has none."""
    learners: int = 1
    """Learner nodes, each with the same number of devices."""

    def shard_of(self, actor: int) -> int:
        """The replay shard that the actor with this index writes to."""
        return actor % self.shards


class Sample(NamedTuple):
    """What a dataset yields to a learner, time-major."""

    record: Record
    """Observation, first and last hold `[T + 1, B, ...]`; all other fields `[T, B, ...]`."""
    state: Nest
    """Recurrent state that belongs to the first observation, `[B, ...]`."""
    info: Any = ()
    """`ItemInfo` where items are drawn by priority or evenly; `()` where each is read once."""


class ItemInfo(NamedTuple):
    """How the items of a batch were drawn.  Leaves are `[B]`."""

    key: Any
    """uint64: the item's key in its shard."""
    shard: Any
    """int32: the replay shard that holds the item."""
    probability: Any
    """float64: with which the item was drawn from among all items of all shards."""
    items: Any
    """int64: the number of all items of all shards."""


class Priorities(NamedTuple):
    """New priorities of items that were sampled.  Leaves are `[B]`."""

    key: Any
    """uint64."""
    shard: Any
    """int32."""
    priority: Any
    """float32, at least 0."""


class Update(NamedTuple):
    """What a learner's call returns: that of one learner step, or of several."""

    metrics: dict[str, Any]
    """Scalar tensors by name, of the last of the steps."""
    priorities: Any = None
    """`Priorities` of the items that were learned from, in that order and over all replicas, or None."""
    steps: int = 1
    """Learner steps that were made."""
    finite: tuple[str, ...] = ()
    """Names of the metrics that must be finite, or the run fails: losses, norms of gradients."""


@functools.lru_cache(maxsize=64)
def version_column(version: Version, batch_size: int) -> np.ndarray:
    """The `version` field of a record, int32 `[B, 2]`; it cannot be written to, since every timestep has the same."""
    column = np.tile(np.asarray(version, np.int32), (batch_size, 1))
    column.setflags(write=False)
    return column


def rebuilt(structure: Nest, leaves: Iterator[Any]) -> Nest:
    """Like `tree.unflatten_as`, ten times as fast: it takes no look at whether the number of leaves is right."""
    if isinstance(structure, dict):
        return {key: rebuilt(structure[key], leaves) for key in sorted(structure)}
    if isinstance(structure, tuple):
        parts = [rebuilt(part, leaves) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    if isinstance(structure, list):
        return [rebuilt(part, leaves) for part in structure]
    return next(leaves)
