"""Callbacks: functions of a user's own that a run calls at episodes, evaluations and results.

A run names them by class (`--callbacks package.module:Class`) or gets objects (`Experiment(callbacks=...)`).  See
docs/guides/callback.md.
"""

import dataclasses
import enum
import inspect
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tree

from .data import Timestep, copied
from .errors import CallboardError, is_utf8, type_text

Metrics = Mapping[str, float]

NAME = "name"
"""Key of the class's name, where callbacks are written with arguments."""


class CallbackRun:
    """The run that calls a callback: facts that it may read, and requests that it may make.

    Args:
      node: name of the node that makes the calls, such as `actor/0`.
      experiment: the run's `Experiment`.
      directory: the run directory.
      environment_steps: returns the environment steps of the whole run, as the node knows them.
      task: returns the environments' task, as the node knows it.
      request: passes a request on, see `Report.requests`.
    """

    def __init__(
        self,
        node: str,
        experiment: Any,
        directory: pathlib.Path,
        environment_steps: Callable[[], int],
        task: Callable[[], Any],
        request: Callable[[str, Any], None],
    ):
        self.node = node
        self.experiment = experiment
        self.directory = directory
        self._environment_steps = environment_steps
        self._task = task
        self._request = request

    @property
    def environment_steps(self) -> int:
        """Environment steps of the whole run; in actors and the evaluator up to about a second old."""
        return self._environment_steps()

    @property
    def task(self) -> Any:
        """The environments' newest task, None for their own; in actors and the evaluator up to about a second old."""
        return self._task()

    def set_task(self, task: Any) -> None:
        """Sets the task that every training environment of the run takes at its next reset.

        Args:
          task: a value that JSON can express: numbers, text, lists, mappings; None for the environments' own.

        Raises:
          CallboardError: the task is anything else.
        """
        self._request("task", plain_task(task))

    def stop(self, reason: str) -> None:
        """Ends the run as at a limit, without a final evaluation.

        Args:
          reason: why, for the user.

        Raises:
          CallboardError: the reason is no text.
        """
        check_reason(reason)
        self._request("stop", reason)


class EpisodeView:
    """An episode of one training environment, as callbacks see it.  One object per episode.

    Attributes:
      slot: index of the environment over the whole run.
      task: the task that had last been set when the episode began; None for the environment's own.
      data: a dictionary for the callbacks' own use; empty at the start of the episode.
      length: environment steps so far.
      episode_return: sum of the rewards so far.
      info: what the library returned beside the newest timestep; at the start of the episode, that of the reset.  Empty
        for environments that have no infos.
      over: whether the episode has ended.
      terminated: whether it ended by termination, not at a time limit.
    """

    def __init__(self, slot: int, task: Any, index: int, timestep: Timestep, info: Mapping[str, Any]):
        self.slot = slot
        self.task = task
        self.data: dict[str, Any] = {}
        self.length = 0
        self.episode_return = 0.0
        self.info = info
        self.over = False
        self.terminated = False
        self._index = index
        self._timestep = timestep
        self._actions: Any = None

    @property
    def timestep(self) -> Timestep:
        """The newest timestep, without the batch axis.

        `observation` is None at the end of an episode whose library has already begun the next one in the same step.
        """
        timestep = Timestep(*(tree.map_structure(self._row, part) for part in self._timestep))
        return timestep._replace(observation=None) if self.over and not timestep.last else timestep

    @property
    def action(self) -> Any:
        """The action that led to the newest timestep, without the batch axis; None at the start."""
        return None if self._actions is None else tree.map_structure(self._row, self._actions)

    def advance(self, actions: Any, timestep: Timestep, info: Mapping[str, Any]) -> None:
        """Takes the batch's next timestep, which followed `actions`, and this environment's info."""
        index = self._index
        self._actions, self._timestep, self.info = actions, timestep, info
        self.length += 1
        self.episode_return += float(timestep.reward[index])
        self.over = bool(timestep.last[index] or timestep.first[index])
        self.terminated = self.over and not timestep.discount[index]

    def _row(self, leaf: Any) -> Any:
        return np.asarray(leaf)[self._index]


class EvaluationView(NamedTuple):
    """An evaluation that has ended, as callbacks see it."""

    metrics: Metrics
    """The metrics of the evaluation by name, such as `evaluator/return`; see docs/metrics.md."""
    returns: Sequence[float]
    """Return of every episode."""
    lengths: Sequence[int]
    """Length of every episode, in environment steps."""
    task: Any
    """The task of evaluations, None for the environments' own."""


class Callbacks:
    """Base class of callbacks: override the methods that you need.

    Each node makes an instance of its own, with the same arguments; nodes in separate processes share nothing.  An
    object given to an `Experiment` itself is used by all nodes that share its process, so the launcher `threads` calls
    it from several threads.  Methods are called in a node's main loop, which waits for them: the metric
    `callbacks/seconds` is the time spent in them.  A method that raises ends the run with its traceback.

    `on_episode_*` are called in the actors, for training episodes, also with central inference; `on_evaluation` in the
    evaluator; `on_run_start`, `on_result` and `on_run_end` in the coordinator.

    The class is saved with the run by its name, like the agent, together with the arguments of its constructor; they
    must be values that YAML can express.  A resumed run makes new instances with them.
    """

    _given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __new__(cls, *arguments: Any, **named: Any) -> "Callbacks":
        self = super().__new__(cls)
        # A frozen dataclass takes attributes only in this way.  The constructor may change the lists that it is given.
        object.__setattr__(self, "_given", (copied(arguments), copied(named)))
        return self

    def on_run_start(self, run: CallbackRun) -> None:
        """Called when the coordinator has started: once per start of the run, also of a resumed one.

        If the coordinator dies and is started again, it is called again.
        """

    def on_run_end(self, run: CallbackRun) -> None:
        """Called at the end of the run, after all other nodes have ended; not if the coordinator has failed."""

    def on_episode_start(self, run: CallbackRun, episode: EpisodeView) -> None:
        """Called after the reset of a training environment, before its first action."""

    def on_episode_step(self, run: CallbackRun, episode: EpisodeView) -> None:
        """Called after every action that a training environment has executed, before `on_episode_end`."""

    def on_episode_end(self, run: CallbackRun, episode: EpisodeView) -> Metrics | None:
        """Called when a training episode has ended.

        Episodes that an actor abandons, because it ends or its inference node was restarted, have no end.

        Returns:
          Metrics of the episode by name, or None.  A name `x` appears as `episode/x`, the mean over the last 100
          episodes, with `episode/x_min` and `episode/x_max`.
        """
        return None

    def on_evaluation(self, run: CallbackRun, evaluation: EvaluationView) -> Metrics | None:
        """Called when an evaluation during training, or that of the final policy, has ended.

        Returns:
          More metrics of the evaluation by name, or None.  A name `x` appears as `evaluator/callbacks/x`.
        """
        return None

    def on_result(self, run: CallbackRun, result: Any) -> Metrics | None:
        """Called about every two seconds, before a row of metrics is written; with the launcher `inline`, every 1,000
        environment steps.

        Args:
          run: the run.
          result: the `callboard.Result` of the run so far, as a `Session` yields it: `environment_steps`,
            `episode_return`, `score`, `metrics` by name, and so on.

        Returns:
          More metrics by name, or None.  A name `x` appears as `callbacks/x`.
        """
        return None

    def setting(self) -> str | dict[str, Any]:
        """Returns the setting that names these callbacks: the class, and the arguments if there are any."""
        name = f"{type(self).__module__}:{type(self).__qualname__}"
        positional, named = self._given
        if not positional and not named:
            return name
        bound = inspect.signature(type(self)).bind(*positional, **named).arguments
        return {NAME: name, **_arguments_by_name(type(self), bound)}


class CallbackFailed(Exception):
    """Raised for an error of callbacks, which is its cause: the run ends, and the node is not restarted."""


def plain_task(task: Any) -> Any:
    """Returns a task as plain values, with NumPy numbers and arrays converted.

    Raises:
      CallboardError: JSON cannot express the task.
    """
    try:
        text = json.dumps(task, default=_plain_number, allow_nan=False, ensure_ascii=False)
        return json.loads(text.encode(), parse_int=_sent_integer)
    except (TypeError, ValueError, RecursionError) as error:
        raise CallboardError(
            f"a task must be plain data (numbers, text, lists, mappings with text as keys): {error}"
        ) from error


def check_reason(reason: Any) -> None:
    """Rejects a reason to end the run that is no text.

    Raises:
      CallboardError: names it.
    """
    if not isinstance(reason, str) or not reason.strip() or not is_utf8(reason):
        raise CallboardError(f"the reason to stop must be a text, such as 'solved', not {reason!r}")


def _sent_integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the number {digits[:20]} has more than 64 bits; give it as text")
    return int(digits)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it contains {type_text(value)}")


def _arguments_by_name(kind: type, bound: Mapping[str, Any]) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in bound:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            by_name.update(cast(Mapping[str, Any], bound[name]))
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise CallboardError(
                f"the callbacks {kind.__name__} take the argument {name!r} by position, which the run's settings "
                "cannot hold: let the constructor take it by name"
            )
        else:
            by_name[name] = bound[name]
    if NAME in by_name:
        raise CallboardError(
            f"the callbacks {kind.__name__} take the argument {NAME!r}, which in the run's settings is the name of "
            "their class: rename it"
        )
    for name, value in by_name.items():
        _check_argument(kind, name, value)
    return by_name


def _check_argument(kind: type, name: str, value: Any) -> None:
    """Refuses an argument of callbacks that the run's settings would give back as something else."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_argument(kind, name, inner)
    elif dataclasses.is_dataclass(value) or isinstance(value, enum.Enum) or callable(value):
        raise CallboardError(
            f"the callbacks {kind.__name__} take {type_text(value)} as {name!r}, which the run's settings cannot hold: "
            "let the constructor take text, numbers, true, false, lists or mappings, and make it of them"
        )
