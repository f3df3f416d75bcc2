"""Handle of the replay servers, resolved again when a server restarts at another address, and waiting for one."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import reverb

from .duplicate_filter import DuplicateFilter

CALL_SECONDS = 5.0
"""How long a call to a shard's `WindowWeights` usually waits for an answer."""


@dataclasses.dataclass(frozen=True)
class ReplayHandle:
    """Handle of all replay shards.

    Nodes receive a handle rather than a client, because an address is only valid until its server restarts.
    """

    addresses: Callable[[], Sequence[str]]
    """Returns the current `host:port` of every shard."""
    incarnation_ids: Callable[[], Sequence[str]] | None = None
    """Returns an id per shard that changes when its server is replaced at the same address."""
    in_process: bool = False
    """Whether the servers run in this process, so that Reverb's samplers read their tables directly."""
    windows: Callable[[int, float], Any] | None = None
    """Returns a client of a shard's `WindowWeights`, where prioritized windows are in items of whole batches, given the
    shard and the seconds after which a call without an answer raises an error."""
    received: DuplicateFilter = dataclasses.field(default_factory=DuplicateFilter)
    """Deduplicates the items of all queues that are read through this handle."""
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Set when nothing is read any more: then datasets of several queues end, even if they wait for items."""

    def address(self, shard: int = 0) -> str:
        return self.addresses()[shard]

    def incarnation(self, shard: int) -> tuple[str, str]:
        """Returns the incarnation of a shard's server, which changes when the server is replaced."""
        return self.address(shard), self.incarnation_ids()[shard] if self.incarnation_ids else ""

    def client(self, shard: int = 0) -> reverb.Client:
        """Creates a client of one shard, which connects when it is first used."""
        return reverb.Client(self.address(shard))


def flushed(writer: reverb.TrajectoryWriter, timeout: float, max_pending: int) -> bool:
    """Sends what a writer holds, and waits until the server has confirmed it.

    Args:
      writer: the writer.
      timeout: maximum time to wait, in seconds; at least a millisecond is waited.
      max_pending: number of items that may remain unconfirmed.

    Returns:
      Whether only that many are unconfirmed.
    """
    try:
        # Reverb waits forever if the timeout is 0.
        writer.flush(max_pending, max(1, int(1000 * timeout)))
    except reverb.errors.DeadlineExceededError:
        return False
    return True
