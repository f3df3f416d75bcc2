"""Steps of several learners in which one of them takes no part, because it has no data or has ended."""

import logging
import threading
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.eager import context

_SECONDS = 0.5
_PROBE_SECONDS = 2.0


class PeerWatch:
    """Ends the step of a learner that would wait for its peers forever: the step raises `tf.errors.UnavailableError`.

    Nothing of the step is applied, since gradients are exchanged before they are.  No further step can be made.

    Args:
      rank: number of this learner.
      learners: number of learners.
      waits_in_vain: returns whether this learner is in a step, and another one will have no data for it.
      is_ending: returns whether this learner is in a step, and is to end; then it is in vain if a peer has ended.
    """

    def __init__(self, rank: int, learners: int, waits_in_vain: Callable[[], bool], is_ending: Callable[[], bool]):
        self.has_ended_step = False
        """Whether a step was ended, or would be if there was one."""
        self._peers = [f"/job:worker/replica:0/task:{peer}" for peer in range(learners) if peer != rank]
        self._waits_in_vain = waits_in_vain
        self._is_ending = is_ending
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="peer-watch", daemon=True).start()

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_SECONDS):
            if self._waits_in_vain() or (self._is_ending() and any(map(_has_ended, self._peers))):
                self.has_ended_step = True
                logging.info("a learner takes no part in this step, which is not made")
                context.context().abort_collective_ops(tf.errors.UNAVAILABLE, "another learner takes no part")
                return


def _has_ended(peer: str) -> bool:
    try:
        context.context().check_collective_ops_peer_health(peer, round(1000 * _PROBE_SECONDS))
    except tf.errors.OpError:
        return True
    return False
