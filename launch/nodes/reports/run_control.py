"""Control of a run while it is under way: where it pauses, what has been changed, and commands to its nodes.

The coordinator owns the `RunControl`.  Every node receives the current `ControlState`, and the commands for it, in the
answer to its next report; the results of commands come with the report after.  So control works over the connections
that a run has anyway, reaches nodes that restart, and survives the loss of any message.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from .large_contents import KEEP
from .messages import Command, ControlState, Reply

MAX_COMMANDS = 1000
"""Commands whose results are kept; older ones are forgotten."""


@dataclasses.dataclass(frozen=True)
class Target:
    """How far a run may go before it pauses.

    Attributes:
      environment_steps: total of the run; infinite for no limit.
      learner_steps: total of the run; infinite for no limit.
    """

    environment_steps: float = math.inf
    learner_steps: float = math.inf


class RunControl:
    """Holds the target and the changes of a run, and commands to its nodes.

    Not thread-safe, except for the methods that it serves, which take the coordinator's lock.

    Args:
      paused: whether the run waits for the first target.
      policies: number of policies that learn; they share the learner steps that are left.
      lock: the lock of the coordinator.
    """

    served: ClassVar[tuple[str, ...]] = ("set_task", "change_settings", "send_command", "replies", "remove_command")

    def __init__(self, paused: bool, policies: int = 1, lock: "threading.RLock | None" = None):
        self._lock = lock or threading.RLock()
        self.changed: Callable[[], None] = lambda: None
        """Called, under the lock, when the task or settings have been set."""
        self._target = Target(0, 0) if paused else Target()
        self._paused = paused
        self._policies = policies
        self._learner_steps: dict[str, int] = {}
        """Learner steps of the current incarnation of the first learner of each policy."""
        self._at_rest: set[str] = set()
        """Policies whose learner has reported, since the run was paused, that it makes no step."""
        self._total_learner_steps = 0
        self._state = ControlState()
        self._commands: dict[str, Command] = {}
        self._waiting: dict[str, set[str]] = {}
        self._replies: dict[str, dict[str, Reply]] = {}

    @property
    def paused(self) -> bool:
        """Whether a target was reached, at the last call of `update`."""
        return self._paused

    @property
    def environment_limit(self) -> float:
        """Environment steps, in total, that the run may do for now; 0 while it is paused."""
        return 0 if self._paused else self._target.environment_steps

    @property
    def learners_rest(self) -> bool:
        """Whether all learners have reported since the run was paused that they make no step."""
        return self._at_rest >= set(self._learner_steps)

    @property
    def state(self) -> ControlState:
        """The changes of the run, without a limit of learner steps."""
        return self._state

    def state_for(self, policy: str) -> ControlState:
        """Returns what the nodes of a policy receive, at the totals of the last `update`."""
        limit = 0 if self._paused else self._target.learner_steps
        if math.isinf(limit):
            return self._state
        share = -(-max(0, int(limit) - self._total_learner_steps) // self._policies)
        return self._state._replace(learner_limit=self._learner_steps.get(policy, 0) + share)

    def take_learner(self, policy: str, steps: int, at_rest: bool) -> None:
        """Takes a report of the first learner of a policy: steps of its incarnation, and whether it makes no step."""
        self._learner_steps[policy] = steps
        (self._at_rest.add if at_rest else self._at_rest.discard)(policy)

    def run_until(self, target: Target) -> None:
        """Lets the run continue to a target; a repeated call changes nothing."""
        self._target = target

    def update(self, environment_steps: int, learner_steps: int) -> None:
        """Takes the run's totals."""
        target = self._target
        self._paused = environment_steps >= target.environment_steps or learner_steps >= target.learner_steps
        self._total_learner_steps = learner_steps
        if not self._paused:
            self._at_rest.clear()

    def set_task(self, task: Any) -> None:
        """Sets the environments' task, a value that JSON can express."""
        with self._lock:
            if task != self._state.task:
                self._state = self._state._replace(version=self._state.version + 1, task=task)
            self.changed()

    def change_settings(self, settings: Mapping[str, float]) -> None:
        """Changes settings of the agent; the other changes remain."""
        with self._lock:
            merged = {**self._state.settings, **settings}
            if merged != self._state.settings:
                self._state = self._state._replace(version=self._state.version + 1, settings=merged)
            self.changed()

    def restore(self, state: ControlState) -> None:
        """Takes over the task and the settings of an earlier state."""
        self.set_task(state.task)
        self.change_settings(state.settings)

    def send_command(
        self, command_id: str, method: str, arguments: bytes, nodes: Sequence[str], parts: int = 0
    ) -> None:
        """Sends a command to nodes, by name; a repeated call changes nothing."""
        with self._lock:
            if command_id in self._commands:
                return
            self._commands[command_id] = Command(command_id, method, arguments, parts)
            self._waiting[command_id] = set(nodes)
            self._replies[command_id] = {}
            while len(self._commands) > MAX_COMMANDS:
                self.remove_command(next(iter(self._commands)))

    def remove_command(self, command_id: str) -> None:
        """Forgets a command whose results have been received, or are not wanted."""
        with self._lock:
            self._commands.pop(command_id, None)
            self._waiting.pop(command_id, None)
            self._replies.pop(command_id, None)

    def commands_for(self, node: str) -> list[Command]:
        """Returns the commands that a node has not answered, the oldest first; of parts of contents, one at a time."""
        waiting = [command for command in self._commands.values() if node in self._waiting[command.id]]
        first = next((command for command in waiting if command.method == KEEP), None)
        return [command for command in waiting if command.method != KEEP or command is first]

    def take_replies(self, node: str, replies: Sequence[Reply]) -> None:
        """Takes the results that a node has reported."""
        for reply in replies:
            if node in self._waiting.get(reply.id, ()):
                self._waiting[reply.id].discard(node)
                self._replies[reply.id][node] = reply

    def replies(self, command_id: str) -> dict[str, list[Any]] | None:
        """Returns the fields of each `Reply` to a command so far, by node; None if there is no such command."""
        with self._lock:
            if command_id not in self._replies:
                return None
            return {node: list(reply) for node, reply in self._replies[command_id].items()}


def own_settings(policy: str, settings: Mapping[str, float]) -> dict[str, float]:
    """Returns the settings of one policy's agent, by their own names; all if the run has one policy."""
    prefix = f"{policy}/" if policy else ""
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
