"""Finding a replay server again soon after it was away."""

import threading
from collections.abc import Sequence

import reverb

from .handle import ReplayHandle

_SECONDS = 1.0


class Heartbeat:
    """Calls every shard once a second, from a thread of its own.

    Left alone, gRPC waits for 9 s and more before it tries a lost connection again, and all clients of a process share
    that wait.  Calls that end after a second make it try at once: a restarted server is found within about two seconds.

    Args:
      replay: the shards.
      stop: ends the threads.
      only: numbers of the shards to call; None calls all.
    """

    def __init__(self, replay: ReplayHandle, stop: threading.Event, only: Sequence[int] | None = None):
        self._replay = replay
        self._stop = stop
        for shard in range(len(replay.addresses())) if only is None else only:
            threading.Thread(target=self._beat, args=(shard,), name=f"replay-heartbeat-{shard}", daemon=True).start()

    def _beat(self, shard: int) -> None:
        address, client = None, None
        while not self._stop.wait(_SECONDS):
            if address != self._replay.address(shard):
                address = self._replay.address(shard)
                client = reverb.Client(address)
            try:
                client.server_info(timeout=1)  # type: ignore[union-attr]
            except Exception:  # Reverb raises its own errors and RuntimeError; each means that nobody is there yet.
                continue
