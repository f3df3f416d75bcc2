"""The protocol of replay kinds: tables for the server, writers for actors and a dataset for the learner.

An agent chooses a kind and its parameters (`Agent.make_replay`).  Since one object creates all three parts, the formats
of writer, table and dataset always agree.
"""

from typing import Any, NamedTuple, Protocol

import reverb
import tensorflow as tf

from ..data import Nest, Record
from ..errors import CallboardError
from .servers.handle import ReplayHandle
from .servers.window_weights import SetPriorities, WindowWeights


class ReplayDataset(NamedTuple):
    """A dataset, and the number of items that one element takes from replay.

    An element holds a batch, or all batches of one learner call.
    """

    dataset: tf.data.Dataset
    table: str
    items_per_batch: float
    """Items that one element takes from `table`; less than 1 if several elements share an item."""
    further: tuple[str, ...] = ()
    """Other tables that it takes items from."""


class Writer(Protocol):
    """Writes an actor's records to replay."""

    def append(self, record: Record, state: Nest) -> None:
        """Adds the record of one timestep and the recurrent state before it.  Never blocks."""

    @property
    def items_written(self) -> int:
        """Items created so far."""

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds until replay has caught up; returns False if it has not.

        `max_pending` is the number of items that may still be unconfirmed; None for the writer's default.
        """

    def close(self) -> None: ...


class Pace(NamedTuple):
    """Limit on how far actors may run ahead of the learner, for agents that learn from each sequence once.

    An actor then writes separate sequences, each with its final observation, and starts one only if it can be learned
    from within `max_policy_lag` learner steps after the step that produced the actor's weights.
    """

    max_policy_lag: int
    """Learner steps; with 0 actors and learner alternate."""
    unroll_length: int
    """Transitions in a sequence (T).  Writers start a new sequence every T + 1 timesteps."""
    items_per_actor: int
    """Items that each actor contributes to one learner step."""


class Replay(Protocol):
    """A replay kind, configured for one run."""

    @property
    def pace(self) -> Pace | None:
        """Limit on how far actors may run ahead of the learner; None for no limit."""

    @property
    def catches_up(self) -> bool:
        """Whether a run that ends first makes all learner steps that the items written allow."""

    @property
    def is_queue(self) -> bool:
        """Whether items are read once, in the order of writing, so that actors wait for the learner."""

    @property
    def may_weigh_windows(self) -> bool:
        """Whether `window_weights` may return something; known without the layout's record and state."""

    def window_weights(self, set_priorities: SetPriorities) -> WindowWeights | None:
        """Returns the store of the weights of windows in a shard's items of whole batches; None where there are none.

        Args:
          set_priorities: sets priorities of the shard's items.
        """

    def check(self) -> None:
        """Raises `CallboardError` for sizes that cannot work.  Does not use the layout's record and state."""

    def tables(self) -> list[reverb.Table]:
        """Creates the tables of one replay shard."""

    def writer(self, replay: ReplayHandle, actor: int) -> Writer:
        """Creates the writer of the actor with index `actor`."""

    def dataset(self, replay: ReplayHandle, input_context: Any) -> ReplayDataset:
        """Creates the dataset of one replica's batches; `input_context` is a `tf.distribute.InputContext`."""


def made_tables(replay: Replay) -> list[reverb.Table]:
    """Returns the tables that a replay kind creates; raises `CallboardError` if it creates something else."""
    tables = replay.tables()
    if not isinstance(tables, list | tuple) or not tables or not all(isinstance(one, reverb.Table) for one in tables):
        raise _wrong(replay, "tables", tables, "a list of reverb.Table")
    return list(tables)


def made_dataset(replay: Replay, handle: ReplayHandle, input_context: Any) -> ReplayDataset:
    """Returns the dataset that a replay kind creates; raises `CallboardError` if it creates something else."""
    made = replay.dataset(handle, input_context)
    if not isinstance(made, ReplayDataset) or not isinstance(made.dataset, tf.data.Dataset):
        raise _wrong(replay, "dataset", made, "a ReplayDataset around a tf.data.Dataset")
    return made


def checked_writer(writer: Any) -> Writer:
    """Returns a writer; raises `CallboardError` if something is missing in it."""
    missing = [name for name in ("append", "items_written", "ready", "close") if not hasattr(writer, name)]
    if missing:
        raise CallboardError(
            f"a writer of records has append, items_written, ready and close; {type(writer).__name__} has no "
            f"{', '.join(missing)}; see replay/replay_protocol.py"
        )
    return writer


def _wrong(replay: Replay, method: str, made: Any, wanted: str) -> CallboardError:
    return CallboardError(
        f"{type(replay).__name__}.{method} must return {wanted}, not {type(made).__name__}; see "
        "replay/replay_protocol.py"
    )
