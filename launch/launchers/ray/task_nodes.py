"""The nodes of Ray tasks, which no launcher stops, and the coordinator that stops them."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ....agents.variables.weights import Unpacking
from ....runtime.deadlines import Deadline
from ...experiments.checked_run import Run
from ...node_names import kind_of, number_of
from ...nodes.acting.actor import ActorNode
from ...nodes.coordination.coordinator import Coordinator
from ...nodes.learning.learner import LearnerNode
from ...nodes.node import NodeContext, Unreachable
from .node_actors import CALL_SECONDS, RayHandle

_SILENCE_SECONDS = 60.0


class TaskCoordinator(Coordinator):
    """A coordinator that stops all tasks if a learner that has reported is then silent for a minute."""

    def __init__(self, context: NodeContext, run: Run, clock: Callable[[], float] = time.monotonic):
        run.directory.create()
        super().__init__(context, run, clock)
        self._silence = Deadline(math.inf, clock)

    def report(self, name: str, *arguments: Any) -> Any:
        if kind_of(name) == "learner" and number_of(name) == 0:
            self._silence.restart(_SILENCE_SECONDS)
        return super().report(name, *arguments)

    def step(self) -> None:
        super().step()
        if self._silence.has_passed:
            self.limits.request_stop(f"the learner has not reported for {_SILENCE_SECONDS:.0f} s")


class RolloutNode(ActorNode):
    """An actor that ends after `limit` environment steps."""

    def __init__(self, limit: float, **arguments: Any):
        super().__init__(**arguments)
        self._limit = limit

    def step(self) -> None:
        super().step()
        if self.environment_steps >= self._limit:
            self.context.stop.set()


class TrainingNode(LearnerNode):
    """A learner that ends after `limit` learner steps, and whose weights go to a parameter server.

    Args:
      weights: handle of the parameter server.
      limit: learner steps.
      push_interval: seconds between two transfers of weights.
      arguments: those of `LearnerNode`.
    """

    def __init__(self, weights: RayHandle, limit: float, push_interval: float, **arguments: Any):
        super().__init__(**arguments)
        self._server, self._limit = weights, limit
        self._push_interval, self._next_push = push_interval, Deadline(0.0)

    def step(self) -> None:
        super().step()
        if self.learner_steps >= self._limit:
            self.end_learning()
        if self.has_ended:
            self.context.stop.set()

    def begin_weights(self, variables: Sequence[tf.Variable]) -> int:
        """Without a checkpoint, begins with the parameter server's weights; its own count as newer in any case."""
        served = self._server.call_until_answered("get_variables", None)
        if served is None:
            return super().begin_weights(variables)
        version, packed = served
        if self._checkpoints.latest() is None:
            for variable, value in zip(variables, Unpacking(variables)(packed), strict=True):
                variable.assign(value)
        return max(super().begin_weights(variables), version[0] + 1)

    def push(self) -> None:
        """Sends the newest weights to the parameter server if that is due, unless it has them or is being restarted."""
        if self._next_push.has_passed:
            with contextlib.suppress(Unreachable):
                server = self._server.client(CALL_SECONDS)
                newest = self._publishing.weights.get_variables(server.version())
                if newest is not None:
                    server.publish(*newest)
                    self._next_push.restart(self._push_interval)
