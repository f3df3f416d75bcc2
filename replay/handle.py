"""Where replay is: a handle that can be resolved again when a server comes back elsewhere."""

import dataclasses
from collections.abc import Callable, Sequence

import reverb

from .duplicate_filter import DuplicateFilter


@dataclasses.dataclass(frozen=True)
class ReplayHandle:
    """The shards of a replay server.

    A handle is passed around instead of a client, because an address is only good until its server restarts.
    """

    addresses: Callable[[], Sequence[str]]
    """Gives the present `host:port` of every shard."""
    lives: Callable[[], Sequence[str]] | None = None
    """Gives what tells the present server of every shard from the one before it, where the address does not."""
    in_process: bool = False
    """Whether the servers run in this process, where Reverb's samplers read their tables directly."""
    received: DuplicateFilter = dataclasses.field(default_factory=DuplicateFilter)
    """What those who read queues by this handle have received."""

    def address(self, shard: int = 0) -> str:
        return self.addresses()[shard]

    def life(self, shard: int) -> tuple[str, str]:
        """Changes when another server takes the place of the shard's."""
        return self.address(shard), self.lives()[shard] if self.lives else ""

    def samples_in_flight(self, samples: int) -> int:
        """How many samples a sampler may ask for ahead, where `samples` is a good number.

        In the server's process a request is made anew every three seconds, and Reverb 0.11 loses the samples of one
        that runs out while it is half full; one for a single sample is never half full.
        """
        return 1 if self.in_process else samples

    def client(self, shard: int = 0) -> reverb.Client:
        """A new client of one shard.  It connects when it is first used."""
        return reverb.Client(self.address(shard))
