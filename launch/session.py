"""Sessions: runs that a Python program starts, continues piece by piece, inspects and changes."""

import atexit
import contextlib
import dataclasses
import math
import pathlib
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import cloudpickle
import launchpad as lp
import numpy as np

from ..agents.acting import CompiledPolicy
from ..agents.agent import Policy
from ..agents.registry import agent_name
from ..data import Layout
from ..deadlines import wait_until
from ..errors import CallboardError, unknown
from ..nested_settings import declared_fields, with_values
from .acting_policy import ActingPolicy
from .evaluation import play_episodes, with_evaluation_settings
from .experiment import Experiment, Run
from .launchers.display import MessageMonitor
from .launchers.launcher import REPORT_STEPS, Launcher
from .launchers.registry import DEFAULT_LAUNCHER, make_launcher
from .launchers.run_outcome import Monitor, Outcome
from .nodes.node import Unreachable
from .nodes.run_control import Reply
from .prepared_run import prepared_run
from .program import handle_of
from .result import Result, result_of
from .run_directory.checkpoints import Checkpoints, assign_weights, read_policy
from .stop_signals import Stopped, stop_signals

T = TypeVar("T")

_CALL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_COORDINATOR = "coordinator/0"
_LEARNER = "learner/0"


class SessionEnded(CallboardError):
    """The run of a session has ended, so it cannot do what was requested."""


class Session:
    """A run that the caller controls.

    Within the `with` block the run exists, and is paused except in `train` and while results are iterated over.
    Leaving the block ends the run with a checkpoint:

        with Session(experiment, launcher="processes") as session:
            result = session.train(steps=10_000)
            session.update(learning_rate=1e-4)
            for result in session:
                print(result.environment_steps, result.episode_return)

    Instead of a `with` block, in a notebook for example, call `start` and `close`.  A session may be used in any
    thread, by one thread at a time.

    Args:
      experiment: what to run.
      launcher: a launcher with its options, or the name of one, see `launchers.registry`.
      monitor: receives the run's status and messages; None prints the messages.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      add_nodes: called with the program graph and the run; adds nodes of your own, see docs/guides/own_node.md.

    Raises:
      CallboardError: at the start, nothing was started, because of the problem that the message names; later, the run
        has failed, or cannot do what was requested.
    """

    def __init__(
        self,
        experiment: Experiment,
        launcher: str | Launcher = DEFAULT_LAUNCHER,
        monitor: Monitor | None = None,
        resume: bool = False,
        add_nodes: Callable[[lp.Program, Run], object] | None = None,
    ):
        self._launcher = make_launcher(launcher) if isinstance(launcher, str) else launcher
        self._arguments = (experiment, self._launcher, resume, add_nodes)
        self._monitor = _StatusKeeper(monitor or MessageMonitor())
        self._opened = contextlib.ExitStack()
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._closing = False
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None

    def run(self) -> Outcome:
        """Runs to the end in this thread, without pauses."""
        with prepared_run(*self._arguments, controlled=False) as prepared:
            return prepared.launch(self._monitor.monitor)

    def start(self) -> "Session":
        """Starts the run, which then is paused before its first step."""
        try:
            self._prepared = self._opened.enter_context(prepared_run(*self._arguments, controlled=True))
        except BaseException:
            self._opened.close()
            raise
        self._experiment = self._prepared.run.experiment
        self._coordinator = handle_of(self._prepared.program, _COORDINATOR)
        self._thread = threading.Thread(target=self._launch_in_background, name="session", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        wait_until(lambda: self._monitor.newest is not None or not self._is_running, math.inf, _POLL_SECONDS)
        self._raise_failure()
        return self

    def close(self) -> Outcome:
        """Ends the run with a checkpoint, and returns how it ended."""
        self._closing = True
        atexit.unregister(self.close)
        if self._thread is not None:
            while self._is_running:
                with contextlib.suppress(Unreachable, SessionEnded):
                    if self._monitor.newest is not None:
                        self._call_once("request_stop", "its session has ended")
                self._thread.join(timeout=0.5)
        self._opened.close()
        return self.outcome or Outcome()

    def __enter__(self) -> "Session":
        # In the main thread, signals end the run with a checkpoint.
        self._opened.enter_context(stop_signals(self._on_signal))
        return self.start()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()
        if kind is None:
            self._raise_failure()

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it exists."""
        return self._outcome

    @property
    def run_directory(self) -> pathlib.Path:
        """The run directory on this machine."""
        return self._prepared.run.directory.path

    @property
    def result(self) -> Result:
        """The newest result."""
        if not self._is_running:
            return dataclasses.replace(result_of(self._monitor.newest or {}), over=True)
        return result_of(self._call("status"))

    def train(self, steps: int | None = None, seconds: float | None = None, learner_steps: int | None = None) -> Result:
        """Continues the run for so much longer, and pauses it again.

        The run pauses at the first limit that it reaches, or ends at one of its own.  It may exceed `steps` by less
        than one timestep of every actor's batch, and `learner_steps` by less than the steps of one call
        (`updates_per_call`).

        Args:
          steps: environment steps.
          seconds: time.
          learner_steps: learner steps.

        Returns:
          The result at the pause.
        """
        limits = {"steps": steps, "seconds": seconds, "learner_steps": learner_steps}
        if all(limit is None for limit in limits.values()):
            raise CallboardError("name a limit: train(steps=...), train(seconds=...) or train(learner_steps=...)")
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise CallboardError(f"{name} must be greater than 0, not {limit}")
        now = self._result_of_running()
        self._call(
            "run_until",
            math.inf if steps is None else now.environment_steps + steps,
            math.inf if learner_steps is None else now.learner_steps + learner_steps,
        )
        end = math.inf if seconds is None else time.monotonic() + seconds
        try:
            while self._is_running:
                status = self._status()
                if status is None or status["paused"]:
                    break
                if time.monotonic() >= end:
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            self._pause()
        self._raise_failure()
        return self.result

    def __iter__(self) -> Iterator[Result]:
        """Continues the run to its end, and yields a result for every report of its metrics.

        The run continues while the caller processes a result, but for a run in one thread (inline).  It pauses when the
        loop is left.
        """
        self._result_of_running()
        if self._launcher.one_thread:
            while True:
                result = self.train(steps=REPORT_STEPS)
                yield result
                if result.over:
                    return
        rows = self._call("status")["rows"]
        self._call("run_until", math.inf, math.inf)
        try:
            while self._is_running:
                status = self._status()
                if status is not None and status["rows"] != rows:
                    rows = status["rows"]
                    yield result_of(status)
                time.sleep(_POLL_SECONDS)
        finally:
            self._pause()
        self._raise_failure()
        yield self.result

    def evaluate(
        self, episodes: int | None = None, mode: Literal["greedy", "sampled"] | None = None
    ) -> "EvaluationResult":
        """Plays whole episodes with the current weights, in environments of this process.

        Args:
          episodes: number of episodes; None for the experiment's `evaluation_episodes`.
          mode: how to act; None for the experiment's `evaluation_mode`.
        """
        experiment = with_evaluation_settings(self._experiment, mode)
        count = experiment.evaluation_episodes if episodes is None else episodes
        if count < 1:
            raise CallboardError(f"episodes must be at least 1, not {count}")
        policy, layout = self._current_policy(experiment)

        def compiled_for(envs: int) -> CompiledPolicy:
            return CompiledPolicy(policy, layout, np.arange(envs), experiment.seed)

        played = play_episodes(experiment, compiled_for, count, lambda text: None)
        returns = [episode.episode_return for episode in played]
        return EvaluationResult(
            float(np.mean(returns)), float(np.std(returns)), returns, [episode.length for episode in played]
        )

    def policy(self, mode: Literal["greedy", "sampled"] | None = None) -> ActingPolicy:
        """Returns the current policy as a function of observations; its weights do not change any more.

        Args:
          mode: how to act; None for the experiment's `evaluation_mode`.
        """
        policy, layout = self._current_policy(with_evaluation_settings(self._experiment, mode))
        return ActingPolicy(policy, layout.spec, self._experiment.seed)

    def save(self) -> pathlib.Path:
        """Writes a checkpoint, and returns its path on the machine of the learner.

        After the end of the run, returns the path of its last checkpoint.
        """
        try:
            return pathlib.Path(self._command(_LEARNER, "save"))
        except SessionEnded:
            return self._last_checkpoint()

    def restore(self, checkpoint: str | pathlib.Path) -> int:
        """Continues from the weights and the optimizer's state in a checkpoint.  Counters do not run backwards.

        Args:
          checkpoint: path of a checkpoint of the same networks, as `save` returns it.

        Returns:
          The checkpoint's learner step.
        """
        return self._command(_LEARNER, "restore", str(pathlib.Path(checkpoint).absolute()))

    def get_weights(self) -> dict[str, np.ndarray]:
        """Returns the policy's current weights, by name; after the end of the run, those of its last checkpoint."""
        try:
            return self._command(_LEARNER, "get_weights")
        except SessionEnded:
            saved = read_policy(self._last_checkpoint() / "policy.npz")
            return dict(zip(saved.names, saved.values, strict=True))

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Assigns weights by name; those that are not named keep their values."""
        self._command(_LEARNER, "set_weights", {name: np.asarray(value) for name, value in weights.items()})

    def update(self, task: Any = None, **settings: float) -> None:
        """Changes what may change in a run; it stays so when the run is resumed.

        Args:
          task: the environments' task from their next episodes on, see docs/guides/curriculum.md; None changes nothing.
          **settings: settings of the agent that are in its `live`, such as `entropy_cost`.  `learning_rate` changes all
            learning rates; `**{"optimizer.learning_rate": 1e-4}` names one.
        """
        changes = self._live_settings(settings)
        if changes and self._experiment.learners > 1:
            raise CallboardError(
                f"settings of {self._experiment.learners} learners cannot be changed while they learn; set learners to "
                "1, or change them with --resume"
            )
        if task is not None:
            self._call("set_task", task)
        if changes:
            self._call("change_settings", changes)

    def for_each_environment(self, function: Callable[[Any], T]) -> list[T]:
        """Calls a function with every training environment, between two of its steps.

        Args:
          function: called where the environment is, perhaps on another machine, with an environment of the library that
            it is from.  A batch whose environments are not separate objects is passed as a whole, once.

        Returns:
          The results by slot.
        """
        actors = [f"actor/{index}" for index in range(self._experiment.actors)]
        replies = self._send(actors, "for_each_environment", function)
        return [result for actor in actors for result in replies[actor]]

    def stop(self, reason: str = "stopped by its session") -> None:
        """Ends the run as at a limit, with a checkpoint."""
        if self._is_running:
            self._call("request_stop", reason)
            assert self._thread is not None
            self._thread.join()

    def _current_policy(self, experiment: Experiment) -> tuple[Policy, Layout]:
        """Returns the policy that an experiment evaluates, with the current weights, and the layout for acting."""
        weights = self.get_weights()
        layout = experiment.acting_layout(self._prepared.run.layout.spec)
        policy = experiment.agent.make_policy(
            experiment.agent.make_networks(layout), experiment.evaluation_policy_mode()
        )
        assign_weights(policy, weights)
        return policy, layout

    def _live_settings(self, settings: Mapping[str, float]) -> dict[str, float]:
        """Returns the changes by full names, checked."""
        agent = self._experiment.agent
        live = type(agent).live
        changes: dict[str, float] = {}
        for name, value in settings.items():
            named = [one for one in live if one == name or (name == "learning_rate" and one.endswith(f".{name}"))]
            if not named and name in declared_fields(agent):
                raise CallboardError(
                    f"{name} cannot change while {agent_name(agent)} learns; what can is {', '.join(live) or 'nothing'}"
                )
            if not named:
                raise unknown("setting", name, live)
            changes |= {one: float(value) for one in named}
        with_values(agent, changes)  # Checks the ranges.
        return changes

    def _last_checkpoint(self) -> pathlib.Path:
        """Returns the newest checkpoint in the run directory of this machine.

        Raises:
          SessionEnded: there is none.
        """
        latest = Checkpoints(self._prepared.run.directory).latest()
        if latest is None:
            raise SessionEnded(f"the run has ended, and {self.run_directory} has no checkpoint")
        return latest

    def _command(self, node: str, method: str, *arguments: Any) -> Any:
        """Executes a command in one node and returns its result."""
        return self._send([node], method, *arguments)[node]

    def _send(self, nodes: Sequence[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Executes a command in nodes, and returns the results by node."""
        self._result_of_running()
        command_id = uuid.uuid4().hex
        content = cloudpickle.dumps((arguments, {}))
        replies: dict[str, Reply] = {}
        while len(replies) < len(nodes):
            # Again each time, since a restarted coordinator does not know the command.
            self._call("send_command", command_id, method, content, list(nodes))
            replies = {node: Reply(*reply) for node, reply in self._call("replies", command_id).items()}
            time.sleep(0 if replies else _POLL_SECONDS)
        self._call("remove_command", command_id)
        for node, reply in replies.items():
            if reply.error:
                raise CallboardError(f"{node}: {reply.error}")
        return {node: cloudpickle.loads(reply.result) for node, reply in replies.items()}

    def _call(self, method: str, *arguments: Any) -> Any:
        """Calls the coordinator until it answers, also while it restarts.

        Raises:
          SessionEnded: the run ends first.
        """
        while True:
            try:
                return self._call_once(method, *arguments)
            except Unreachable:
                self._client = None
                time.sleep(_POLL_SECONDS)

    def _call_once(self, method: str, *arguments: Any) -> Any:
        if not self._is_running:
            self._raise_failure()
            raise SessionEnded(f"the run has ended ({self._outcome.reason if self._outcome else 'not started'})")
        if self._client is None:
            self._client = self._coordinator.client(_CALL_SECONDS)
        return getattr(self._client, method)(*arguments)

    def _status(self) -> dict[str, Any] | None:
        """Returns the coordinator's status; None if the run is ending."""
        try:
            return self._call("status")
        except SessionEnded:
            return None

    def _result_of_running(self) -> Result:
        """Returns the newest result.

        Raises:
          SessionEnded: the run has ended.
        """
        return result_of(self._call("status"))

    def _pause(self) -> None:
        """Pauses the run where it is."""
        with contextlib.suppress(SessionEnded):
            self._call("run_until", 0, 0)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._outcome

    def _on_signal(self, number: int) -> None:
        ending = self._closing or bool((self._monitor.newest or {}).get("stopping"))
        if number == signal.SIGTERM and ending and self._is_running:
            return  # Launchpad sends it to its own process at the end of a run.
        raise Stopped(number)

    def _raise_failure(self) -> None:
        """Raises the error of a run that has failed."""
        if self._error is not None:
            raise self._error
        outcome = self._outcome
        if outcome is not None and outcome.failed_node is not None:
            raise CallboardError(f"{outcome.failed_node} failed: {outcome.error}")

    def _launch_in_background(self) -> None:
        try:
            self._outcome = self._prepared.launch(self._monitor)
        except BaseException as error:
            self._error = error


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """The result of `Session.evaluate`.

    Attributes:
      mean: mean return.
      std: standard deviation of the returns.
      returns: of every episode.
      lengths: environment steps of every episode.
    """

    mean: float
    std: float
    returns: list[float]
    lengths: list[int]


class _StatusKeeper:
    """Keeps the newest status of a run, and forwards everything to a monitor."""

    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.newest: dict[str, Any] | None = None

    def status(self, status: dict[str, Any]) -> None:
        self.newest = status
        self.monitor.status(status)

    def notify(self, text: str) -> None:
        self.monitor.notify(text)
