"""What every replay kind provides: tables for the server, writers for actors and a dataset for the learner.

An agent names a kind and its numbers (`Agent.make_replay`).  Since one object makes all three, what is written, what
lies in the table and what is read cannot disagree.
"""

from typing import Any, NamedTuple, Protocol

import reverb
import tensorflow as tf

from ..data import Nest, Record
from .handle import ReplayHandle


class ReplayDataset(NamedTuple):
    """A dataset, and what one element of it takes from replay: a batch, or as many as one learner call uses."""

    dataset: tf.data.Dataset
    table: str
    items_per_batch: float
    """Items that one element takes from `table`; below 1 where an item serves several."""


class Writer(Protocol):
    """Writes an actor's records to replay."""

    def append(self, record: Record, state: Nest) -> None:
        """Adds the record of one timestep, and the recurrent state that it began with.  Never blocks."""

    @property
    def items_written(self) -> int:
        """Items created so far."""

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds until replay has caught up; False if it has not.

        `max_pending` is the number of items that may still wait for replay; None leaves it to the writer.
        """

    def close(self) -> None: ...


class Pace(NamedTuple):
    """How far actors may run ahead of the learner, for agents that learn from each sequence once and while it is new.

    An actor then writes sequence after sequence, each with the observation that ends it, and begins one only if it can
    be learned from within `max_policy_lag` learner steps after the step that produced the weights it acts with.
    """

    max_policy_lag: int
    """Learner steps; with 0 actors and learner take turns."""
    unroll_length: int
    """Transitions in a sequence (T).  Writers start a new sequence every T + 1 timesteps."""
    items_per_actor: int
    """Items that each actor contributes to one learner step."""


class Replay(Protocol):
    """One kind of replay, for one run."""

    @property
    def pace(self) -> Pace | None:
        """How far actors may run ahead of the learner; None does not hold them back."""

    def check(self) -> None:
        """Raises `CallboardError` for sizes that cannot work.  Needs no record and no state in the layout."""

    def tables(self) -> list[reverb.Table]:
        """The tables of one replay shard."""

    def writer(self, replay: ReplayHandle, actor: int) -> Writer:
        """The writer of the actor with index `actor`."""

    def dataset(self, replay: ReplayHandle, input_context: Any) -> ReplayDataset:
        """The batches of one replica; `input_context` is a `tf.distribute.InputContext`."""
