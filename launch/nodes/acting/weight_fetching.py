"""Fetching of the learner's weights by nodes that act."""

from collections.abc import Callable
from typing import Any, Protocol

from ....agents.variables.weights import WeightClient, WeightFetcher
from ..node import NodeContext, Unreachable

CALL_SECONDS = 5.0
"""Timeout of a call to the learner."""
FETCH_SECONDS = 0.01
"""Least time between the answer to a request for weights and the next one."""
_FETCHES_A_SECOND = 500
"""Upper bound on weight requests per second over all actors that need not wait for newer ones, so that the learner has
time to learn."""


class WeightServer(Protocol):
    """Where weights come from: a `NodeHandle`, or a `RelayedLearner`."""

    name: str

    def client(self, timeout: float) -> Any:
        """Returns a source of weights whose calls raise `Unreachable` after `timeout` seconds."""


def fetch_weights(weights: WeightFetcher, learner: WeightServer, context: NodeContext) -> bool:
    """Fetches newer weights from the learner; returns False if it does not answer.

    In that case the learner is being restarted, perhaps on another host, or its link is slow.  Until it is back, actors
    continue with the weights they have.
    """

    def proceed() -> bool:
        context.progress.transfer = weights.parts.total, weights.parts.seconds
        return not context.stop.is_set()

    try:
        weights.fetch(proceed)
    except Unreachable:
        weights.reconnect(learner.client(CALL_SECONDS))
        return False
    return True


def fetch_in_background(
    weights: WeightClient, learner: WeightServer, pause: Callable[[], float], context: NodeContext
) -> None:
    """Keeps fetching newer weights from the learner in a background thread.

    Args:
      weights: the weights to keep up to date.
      learner: handle of the learner.
      pause: returns the seconds between an answer and the next request.
      context: context of the node; its `stop` ends the thread.
    """
    weights.keep_fetching(lambda: fetch_weights(weights, learner, context), pause, context.stop)


def fetch_pause(nodes: float) -> float:
    """Returns the seconds each of `nodes` nodes waits between the learner's answer and its next request."""
    return max(FETCH_SECONDS, nodes / _FETCHES_A_SECOND)


def wait_for_weights(weights: WeightClient, learner: WeightServer, context: NodeContext) -> bool:
    """Waits for the first weights; returns False if the run stops first."""
    context.progress.waits(f"weights of {learner.name}")
    while not context.stop.is_set():
        if not fetch_weights(weights, learner, context):
            continue
        if weights.apply() or weights.version is not None:
            return True
        context.stop.wait(0.02)
    return False
