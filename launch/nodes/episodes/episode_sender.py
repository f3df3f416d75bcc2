"""Sends the episodes that an actor has played to the recorder node."""

import logging
import pickle

from ....environments.recorded.episode_columns import EpisodeColumns
from ....runtime.deadlines import Deadline
from ..node import NodeContext, NodeHandle, Unreachable

_CALL_SECONDS = 60.0
_RETRY_SECONDS = 0.5
_LAST_SECONDS = 8.0
"""Time for which an actor that ends tries to send its last episodes."""


class EpisodeSender:
    """The sink of an actor's `EpisodeRecorder`: repeats its calls until the recorder node has written the episodes.

    Args:
      context: context of the actor.
      recorder: handle of the recorder node.
    """

    def __init__(self, context: NodeContext, recorder: NodeHandle):
        self._context = context
        self._recorder = recorder
        self._number = 0

    def __call__(self, episodes: list[EpisodeColumns]) -> bool:
        """Sends episodes; returns False if no more are taken."""
        self._number += 1
        source = f"{self._context.name}/{self._context.incarnation_id}"
        pickled = pickle.dumps(episodes)
        last: Deadline | None = None
        while True:
            try:
                answer = self._recorder.client(_CALL_SECONDS).record(source, self._number, pickled)
            except Unreachable as error:
                logging.warning("%s does not answer: %s", self._recorder.name, error)
                answer = None
            if answer is not None:
                return bool(answer)
            if self._context.stop.is_set():
                last = last or Deadline(_LAST_SECONDS)
                if last.has_passed:
                    logging.warning("%d episodes could not be recorded", len(episodes))
                    return True
            self._context.stop.wait(_RETRY_SECONDS)
