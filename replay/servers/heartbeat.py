"""Heartbeat to the replay servers, so that clients reconnect quickly after a restart."""

import threading
from collections.abc import Sequence

import reverb

from .handle import ReplayHandle

_SECONDS = 1.0


class Heartbeat:
    """Calls every shard once a second, each from a background thread.

    By default gRPC waits 9 s or more before it retries a lost connection, and all clients of a process share that
    backoff.  Calls with a timeout of a second make it retry immediately, so clients reconnect to a restarted server
    within about two seconds.

    Args:
      replay: handle of the shards.
      stop: ends the threads when set.
      only: indices of the shards to call; None for all.
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
            except Exception:  # Reverb raises its own errors and RuntimeError; all mean that no server answers yet.
                continue
