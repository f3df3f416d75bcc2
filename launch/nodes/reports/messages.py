"""The messages between nodes and the coordinator, and the plain values as which they are sent.

A node sends a `Report` and receives a `RunState`.  Courier hangs on NumPy values, and sends named tuples as tuples, so
`plain_message` turns messages into lists of Python's own values, and `of` makes messages of them again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class LeaseRequest(NamedTuple):
    """An actor's request for its lease."""

    limit: int
    """Environment steps the actor may do, in total since it started."""
    wants: bool
    """Whether the actor waits for more."""


class NodeHealth(NamedTuple):
    """The state of a node."""

    host: str
    process: int
    """Id of the process; nodes of `inline` and `threads` share one."""
    cpu: float
    """Processor cores that the process has used, on average over the last seconds."""
    memory: int
    """Resident memory of the process and of the processes that it has started, in bytes."""
    activity: str
    """The activity of the node, such as `in environment step`."""
    waiting: dict[str, float]
    """Fraction of the last seconds for which the node waited, by what it waited for."""
    weights: int | None = None
    """Learner step of the weights that the node acts with; None for a node that has none."""
    starting: bool = False
    """Whether the node did slow work, such as compiling, so that `waiting` says nothing about the rest of the run."""
    transfer: Sequence[float] | None = None
    """See `Progress.transfer`."""
    evaluation: Sequence[int] | None = None
    """See `Progress.evaluation`."""
    memory_of_workers: int = 0
    """The part of `memory` that belongs to processes that the process has started, such as those of environments."""
    memory_use: Sequence[Any] | None = None
    """The fields of the `MemoryUse` with the least room."""


class Command(NamedTuple):
    """A call of a method of a node's main loop."""

    id: str
    method: str
    arguments: bytes
    """`cloudpickle` of the positional and the keyword arguments."""
    parts: int = 0
    """Number of parts in which the arguments came before, see `large_contents`; 0 if they are here."""


class Reply(NamedTuple):
    """The result of a command."""

    id: str
    error: str
    """Text of the error; empty if there was none."""
    result: bytes
    """`cloudpickle` of the return value."""
    parts: int = 0
    """Number of parts of the result that the node gives, see `large_contents`; 0 if it is here."""


class ControlState(NamedTuple):
    """The changes of a run, and the limit at which it pauses."""

    version: int = 0
    """Increases with every change of the task or the settings."""
    learner_limit: int | None = None
    """Learner step, of the learner's current incarnation, after which it pauses; None for no limit."""
    task: Any = None
    """The environments' task, see `BatchedEnvironment`; None for their own."""
    settings: Mapping[str, float] = {}
    """The agent's settings that have changed since the start, by name, such as `optimizer.learning_rate`, or
    `red/optimizer.learning_rate` of the policy `red`."""


class Report(NamedTuple):
    """A node's report to the coordinator; values are Python's own."""

    counts: dict[str, int] = {}
    """Totals since the node started, so a report that arrives twice, or not at all, does no harm."""
    values: dict[str, float] = {}
    """The newest values of metrics; those of a policy's nodes get its name as a prefix."""
    episodes: Sequence[Sequence[float]] = ()
    """Return and length of the training episodes that ended since the last report."""
    evaluation: dict[str, float] | None = None
    """The result of an evaluation."""
    lease: LeaseRequest | None = None
    """An actor's request for environment steps."""
    short_of_data: float = 0.0
    """Seconds for which a learner has been waiting for data."""
    replies: Sequence[Reply] = ()
    """Results of commands."""
    requests: Sequence[tuple[str, Any]] = ()
    """Requests of the node: `("task", task)` sets the environments' task, `("stop", reason)` ends the run."""
    health: NodeHealth | None = None
    """How the node does; None if it was measured in one of the last reports."""
    episode_values: Sequence[Any] = ()
    """Metrics of the training episodes that ended since the last report, the fields of `EpisodeValues`."""
    joint_episodes: Sequence[Any] = ()
    """Training episodes of environments with several agents that ended since then, the fields of `JointEpisode`."""
    at_rest: bool = False
    """Whether a learner makes no step until the run's session continues."""

    @classmethod
    def of(cls, fields: Sequence[Any]) -> "Report":
        """Returns the report that was sent as these plain values."""
        report = cls(*fields)
        return report._replace(
            lease=None if report.lease is None else LeaseRequest(*report.lease),
            health=None if report.health is None else NodeHealth(*report.health),
            replies=[Reply(*reply) for reply in report.replies],
        )


class RunState(NamedTuple):
    """The coordinator's answer to a report."""

    stopping: bool
    environment_steps: int
    incarnations: dict[str, str]
    """Incarnation id of every node that has reported, by name; an answer holds only those that have changed."""
    incarnations_known: list[Any] | None
    """The version of those ids, which goes back to the coordinator with the next report."""
    report_seconds: float
    """Interval between reports."""
    step_limit: int | None = None
    """The new limit of the lease, if the report requested one."""
    short_of_data: dict[str, float] = {}
    """Seconds for which learners have been waiting for data, by name; only of those that are."""
    control: ControlState = ControlState()
    """Pause, task and changed settings."""
    commands: Sequence[Command] = ()
    """Commands for this node that it has not answered yet."""
    finished: Sequence[str] = ()
    """The policies whose learners have made their last step; one without a name if the run has one policy."""
    seconds: float = 0.0
    """Seconds for which the run has been running, over all its resumes."""

    @classmethod
    def of(cls, fields: Sequence[Any]) -> "RunState":
        """Returns the answer that was sent as these plain values."""
        state = cls(*fields)
        return state._replace(
            control=ControlState(*state.control), commands=[Command(*command) for command in state.commands]
        )


def plain_message(message: Any) -> Any:
    """Returns the list of a message's fields, in which messages, tuples and arrays are lists, too."""
    if isinstance(message, tuple | list):
        return [plain_message(field) for field in message]
    if isinstance(message, Mapping):
        return {plain_message(key): plain_message(value) for key, value in message.items()}
    if isinstance(message, np.generic | np.ndarray):
        return message.tolist()
    return message
