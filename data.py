"""Data types shared by all packages: timesteps, records, layouts, samples and updates.

Axes: `B` is the batch of environments that one actor steps, `T` is time.  A *nest* is any structure of tuples, named
tuples and dictionaries that `tree` supports, with arrays or tensors as leaves.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Nest = Any
RECORDED = "episodes/recorded-v0"
"""Folder of the recorded episodes in a run directory, a Minari data set; `episodes` can be Minari's own folder."""


class Timestep(NamedTuple):
    """Output of a batch of environments after a reset or a step.

    Transition t -> t+1 is valid unless `last[t]`, or `first[t+1]` with a discount other than 0 (the episode was
    truncated and its final observation is lost).  Nothing is learned from an invalid transition.
    """

    observation: Nest
    """Nest of arrays `[B, ...]`, as in the environment's spec."""
    reward: Any
    """float32 `[B]`: the reward of the action just taken; 0 after a reset."""
    discount: Any
    """float32 `[B]`: 0 where that action terminated the episode; otherwise 1, also at a time limit."""
    first: Any
    """bool `[B]`: this observation begins an episode."""
    last: Any
    """bool `[B]`: this observation ends an episode; the next action is ignored and the next timestep is `first`."""


class Version(NamedTuple):
    """The version of a learner's weights.

    When a learner restarts from a checkpoint, `step` may decrease but `incarnation` never does.
    """

    incarnation: int
    step: int


class Record(NamedTuple):
    """The record that an actor writes for timestep t.  Leaves are arrays `[B, ...]`."""

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
    """Additional outputs of the policy: logits, log-probabilities, Q-values, ..."""
    version: Any
    """int32 `[B, 2]`: the `Version` of the weights that chose the action."""


class Layout(NamedTuple):
    """Sizes and specs of a run that an agent needs in order to set up replay and learning."""

    spec: Any
    """The environment's `specs.EnvironmentSpec`."""
    envs_per_actor: int
    actors: int
    shards: int
    replicas: int
    """Learner devices over all learners; the global batch is divided among them."""
    seed: int
    max_steps: int
    """Environment steps after which the run ends."""
    record: Any = None
    """`Record` of `tf.TensorSpec` for one environment (no axis B).  None until the policy has been traced."""
    state: Nest = None
    """`tf.TensorSpec` nest of the policy's recurrent state for one environment, `()` if it has none."""
    learners: int = 1
    """Learner nodes, each with the same number of devices."""
    agents_per_env: int = 1
    """Agents of each environment that the policy controls; `envs_per_actor` counts each of them."""
    max_learner_steps: int | None = None
    """Learner steps after which the run ends, if it has such a limit."""
    goal_rewards: Any = None
    """The environment's `environments.batches.goal_rewards.GoalRewards`, in an actor whose writer needs them."""

    @property
    def max_timesteps(self) -> int:
        """Timesteps of single agents until the end of the run: `max_steps`, unless environments have several."""
        return self.max_steps * self.agents_per_env

    def shard_of(self, actor: int) -> int:
        """Returns the replay shard that the actor with index `actor` writes to."""
        return actor % self.shards

    def learner_of(self, actor: int) -> int:
        """Returns the rank of the learner that the actor with index `actor` feeds, if learners have separate queues."""
        return actor % self.learners


class Sample(NamedTuple):
    """A batch of experience from a dataset, time-major."""

    record: Record
    """Observation, first and last hold `[T + 1, B, ...]`; all other fields `[T, B, ...]`."""
    state: Nest
    """Recurrent state for the first observation, `[B, ...]`."""
    info: Any = ()
    """`ItemInfo` where items are sampled by priority or uniformly; `()` where each is read once."""
    discounted_return: Any = ()
    """float32 `[T, B]`, the discounted sum of the episode's rewards up to that of the transition, since its start or
    that of the writer; `()` unless replay keeps it."""


class ItemInfo(NamedTuple):
    """How the items of a batch were sampled.  Leaves are `[B]`."""

    key: Any
    """uint64: the item's key in its shard."""
    shard: Any
    """int32: the replay shard that holds the item."""
    probability: Any
    """float64: the probability of sampling the item among all items of all shards."""
    items: Any
    """int64: the number of items in all shards; of prioritized windows in items of several, for how many those items
    have room."""
    env: Any = ()
    """int32: which window of an item of several, by environment and then by goal; `()` for items of single ones."""


class Priorities(NamedTuple):
    """New priorities of sampled items.  Leaves are `[B]`."""

    key: Any
    """uint64."""
    shard: Any
    """int32."""
    priority: Any
    """float32, at least 0."""
    env: Any = ()
    """int32, as in `ItemInfo`."""


class Update(NamedTuple):
    """Result of one call of a learner, which performs one learner step or several."""

    metrics: dict[str, Any]
    """Scalar tensors by name, from the last of the steps."""
    priorities: Any = None
    """`Priorities` of the items that were learned from, in their order and over all replicas, or None."""
    steps: int = 1
    """Number of learner steps performed."""
    finite: tuple[str, ...] = ()
    """Names of metrics, such as losses and gradient norms, that must be finite; otherwise the run fails."""


@functools.lru_cache(maxsize=64)
def version_column(version: Version, batch_size: int) -> np.ndarray:
    """Returns the `version` field of a record, int32 `[B, 2]`, read-only because all timesteps share the array."""
    column = np.tile(np.asarray(version, np.int32), (batch_size, 1))
    column.setflags(write=False)
    return column


def any_true(flags: np.ndarray) -> bool:
    """Returns whether any element of a bool array is True; for small arrays in a fraction of the time of `any`."""
    return 1 in flags.tobytes()


def rebuilt(structure: Nest, leaves: Iterator[Any]) -> Nest:
    """Does what `tree.unflatten_as` does, ten times as fast, without a check of the number of leaves."""
    if isinstance(structure, dict):
        return {key: rebuilt(structure[key], leaves) for key in sorted(structure)}
    if isinstance(structure, tuple):
        parts = [rebuilt(part, leaves) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    if isinstance(structure, list):
        return [rebuilt(part, leaves) for part in structure]
    return next(leaves)


def copied(value: Any) -> Any:
    """Returns arguments with copies of the lists and dictionaries in them, which the called function may change."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value
