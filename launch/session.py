"""Sessions: runs that a Python program starts, continues piece by piece, inspects and changes."""

import contextlib
import dataclasses
import math
import numbers
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import launchpad as lp
import numpy as np

from ..agents.learning.live_settings import live_changes
from ..callbacks import check_reason, plain_task
from ..environments import ONLY_AGENT
from ..errors import CallboardError, UnknownAttribute, check_type, exits_refused, named_path, type_text, unknown
from ..runtime.deadlines import Deadline
from ..settings.setting_arguments import checked_names
from ..settings.setting_types import shown
from .experiments.checked_run import Run
from .experiments.experiment import Experiment, check_is_experiment
from .experiments.experiment_checks import check_tasks
from .launchers.launcher import REPORT_STEPS, Launcher
from .launchers.registry import DEFAULT_LAUNCHER, make_launcher
from .launchers.run_outcome import Monitor, Outcome
from .launchers.screen.display import MessageMonitor
from .launchers.screen.piece_progress import PieceProgress
from .launchers.screen.run_summary import show_end
from .node_names import metric_of
from .nodes.acting.actor_view import ActorView
from .processes.exit_calls import call_at_exit, remove_call
from .processes.stop_signals import Stopped, stop_signals
from .result import EvaluationResult, Result, evaluation_result, result_of
from .run_directory.checkpoints import Checkpoints
from .run_directory.policy_weights import assign_weights, read_policy
from .runs.background_run import POLL_SECONDS, BackgroundRun, SessionEnded
from .runs.prepared_run import prepared_run
from .trained.acting_policy import ActingPolicy
from .trained.evaluation import current_players, play_episodes, with_evaluation_settings

T = TypeVar("T")


@checked_names
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
    thread, by one thread at a time.  It has one run: another session continues that with `resume`.

    Args:
      experiment: what to run.
      launcher: a launcher with its options, or the name of one, see `launchers.registry`.
      monitor: receives the run's status and messages; None prints the messages, and of `run` how it ended.
      resume: whether to continue the run in `experiment.run_dir` instead of starting a new one there.
      add_nodes: called with the program graph and the run; adds nodes of your own, see docs/guides/own_node.md.
      overwrite: whether a new run replaces one that is in `experiment.run_dir`.

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
        overwrite: bool = False,
    ):
        self._launcher = make_launcher(launcher) if isinstance(launcher, str) else launcher
        if not isinstance(self._launcher, Launcher):
            raise CallboardError(f"launcher must be a name, or a Launcher such as ThreadsLauncher(), not {launcher!r}")
        check_is_experiment(experiment)
        for name, flag in (("resume", resume), ("overwrite", overwrite)):
            check_type(name, flag, bool, "True or False")
        check_type("add_nodes", add_nodes, Callable | None, "a function of the program and the run")
        if monitor is not None and not all(callable(getattr(monitor, name, None)) for name in ("status", "notify")):
            raise CallboardError(f"monitor must have the methods status and notify, not be {type_text(monitor)}")
        self._arguments = (experiment, self._launcher, resume, add_nodes)
        self._overwrite = overwrite
        self._monitor = monitor or MessageMonitor()
        self._prints_end = monitor is None
        self._opened = contextlib.ExitStack()
        self._background: BackgroundRun | None = None
        self._had_run = False

    if not TYPE_CHECKING:  # Type checkers find names that do not exist themselves.

        def __getattr__(self, name: str) -> Any:
            raise UnknownAttribute(f"{type(self).__name__!r} object", name, dir(type(self)))

    @exits_refused()
    def run(self) -> Outcome:
        """Runs to the end in this thread, without pauses.

        Raises:
          CallboardError: it cannot be run, or this session has had its run.
        """
        self._check_had_no_run()
        with prepared_run(*self._arguments, controlled=False, overwrite=self._overwrite) as prepared:
            self._had_run = True
            outcome = prepared.launch(self._monitor)
        if self._prints_end:
            show_end(outcome, self._arguments[0].evaluation_episodes)
        return outcome

    @exits_refused()
    def start(self) -> "Session":
        """Starts the run, which then is paused before its first step.

        Raises:
          CallboardError: it cannot be run, or this session has had its run.
        """
        self._check_had_no_run()
        try:
            prepared = prepared_run(*self._arguments, controlled=True, overwrite=self._overwrite)
            self._background = BackgroundRun(self._opened.enter_context(prepared), self._monitor)
            self._background.start()
            self._had_run = True
            call_at_exit(self.close)
        except BaseException:
            # A block that was not entered is not left: nothing else would end the run and unlock its directory.
            self.close()
            raise
        return self

    def close(self) -> Outcome:
        """Ends the run with a checkpoint, and returns how it ended."""
        if self._background is not None:
            self._background.close()
        self._opened.close()
        # Not before, since an interrupt may have ended this call.
        remove_call(self.close)
        return self.outcome or Outcome()

    def __enter__(self) -> "Session":
        self._check_had_no_run()
        # In the main thread, signals end the run with a checkpoint.
        self._opened.enter_context(stop_signals(_raise_stopped))
        return self.start()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()
        if kind is None:
            self._running().raise_failure()

    def _check_had_no_run(self) -> None:
        """Raises `CallboardError` if the session has a run or had one, which `overwrite` would replace."""
        if self._background is not None and self._background.exists:
            raise CallboardError("the session has started its run already: continue with it, or close it first")
        if self._had_run:
            raise SessionEnded(
                "the session has had its run, and has no other: continue it in Session(experiment, resume=True), or "
                "make a Session for another"
            )

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it exists."""
        return None if self._background is None else self._background.outcome

    @property
    def run_directory(self) -> pathlib.Path:
        """The run directory on this machine."""
        return self._run.directory.path

    @property
    def result(self) -> Result:
        """The newest result."""
        run = self._running()
        status = run.status()
        return dataclasses.replace(result_of(run.newest_status), over=True) if status is None else result_of(status)

    def train(
        self,
        steps: int | None = None,
        seconds: float | None = None,
        learner_steps: int | None = None,
        progress: bool = False,
    ) -> Result:
        """Continues the run by some steps or seconds, and pauses it again.

        The run pauses at the first limit that it reaches, or ends at one of its own.  It may exceed `steps` by less
        than one timestep of every actor's batch, and `learner_steps` by less than the steps of one call
        (`updates_per_call`).

        Args:
          steps: environment steps.
          seconds: time.
          learner_steps: learner steps.
          progress: whether to show a bar and the newest metrics: in a terminal, or below a notebook's cell, in place;
            elsewhere in lines.

        Returns:
          The result at the pause.
        """
        limits = {"steps": steps, "seconds": seconds, "learner_steps": learner_steps}
        if all(limit is None for limit in limits.values()):
            raise CallboardError("name a limit: train(steps=...), train(seconds=...) or train(learner_steps=...)")
        for name, limit in limits.items():
            if limit is not None and not (isinstance(limit, numbers.Real) and limit > 0):
                raise CallboardError(f"{name} must be greater than 0, not {limit!r}")
        run = self._running()
        begin = run.call("status")
        environment_steps = math.inf if steps is None else begin["environment_steps"] + steps
        learner_limit = math.inf if learner_steps is None else begin["learner_steps"] + learner_steps
        end = Deadline(math.inf if seconds is None else seconds)
        shown = PieceProgress(limits, begin) if progress else None
        try:
            while (status := run.status()) is not None and not end.has_passed:
                if shown is not None:
                    shown.show(status)
                if status["environment_steps"] >= environment_steps or status["learner_steps"] >= learner_limit:
                    if status["paused"]:
                        break
                elif status["paused"]:
                    # At the beginning, and after a restart of the coordinator.
                    run.call("run_until", environment_steps, learner_limit)
                time.sleep(POLL_SECONDS)
        finally:
            run.pause()
            if shown is not None:
                shown.close(run.status() or run.newest_status)
        run.raise_failure()
        return self.result

    def __iter__(self) -> Iterator[Result]:
        """Continues the run to its end, and yields a result for every report of its metrics.

        The run continues while the caller processes a result, but for a run in one thread (inline).  It pauses when the
        loop is left.
        """
        run = self._running()
        if self._launcher.one_thread:
            while True:
                result = self.train(steps=REPORT_STEPS)
                yield result
                if result.over:
                    return
        rows = run.call("status")["rows"]
        try:
            while (status := run.status()) is not None:
                if status["paused"]:
                    # At the beginning, and after a restart of the coordinator.
                    run.call("run_until", math.inf, math.inf)
                if status["rows"] != rows:
                    rows = status["rows"]
                    yield result_of(status)
                time.sleep(POLL_SECONDS)
        finally:
            run.pause()
        run.raise_failure()
        yield self.result

    @exits_refused()
    def evaluate(
        self, episodes: int | None = None, mode: Literal["greedy", "sampled"] | None = None
    ) -> EvaluationResult:
        """Plays whole episodes with the current weights, in environments of this process.

        Args:
          episodes: number of episodes; None for the experiment's `evaluation_episodes`.
          mode: how to act; None for the experiment's `evaluation_mode`.
        """
        run = self._run
        experiment = with_evaluation_settings(run.experiment, mode)
        count = experiment.evaluation_episodes if episodes is None else episodes
        if not isinstance(count, numbers.Integral) or count < 1:
            raise CallboardError(f"episodes must be a whole number of at least 1, not {count!r}")
        players = current_players(experiment, run, {name: self.get_weights(name) for name in run.policies})
        played = play_episodes(experiment, players, count, lambda text: None)
        return evaluation_result(played.episodes, played.metrics)

    @exits_refused()
    def policy(self, mode: Literal["greedy", "sampled"] | None = None, policy: str | None = None) -> ActingPolicy:
        """Returns the current policy as a function of observations; its weights do not change any more.

        Args:
          mode: how to act; None for the experiment's `evaluation_mode`.
          policy: name of the policy, if the run has several that learn.
        """
        policy_run = _policy_run(self._run, policy)
        experiment = with_evaluation_settings(policy_run.experiment, mode)
        layout, agent = experiment.acting_layout(policy_run.layout.spec), experiment.agent
        acting = agent.make_policy(agent.make_networks(layout), experiment.evaluation_policy_mode())
        assign_weights(acting, self.get_weights(policy))
        return ActingPolicy(acting, agent.acting_spec(layout.spec), self._run.experiment.seed, layout.spec)

    def save(self, policy: str | None = None) -> pathlib.Path:
        """Writes a checkpoint, and returns its path on the machine of the learner.

        The run keeps it, in addition to `keep_checkpoints`.  After the end of the run, returns the path of its last
        checkpoint.

        Args:
          policy: name of the policy, if the run has several that learn.
        """
        try:
            return pathlib.Path(self._learner(policy, "save"))
        except SessionEnded:
            return _last_checkpoint(_policy_run(self._run, policy))

    def restore(self, checkpoint: str | pathlib.Path, policy: str | None = None) -> int:
        """Continues from the weights and the optimizer's state in a checkpoint.  Counters do not run backwards.

        Args:
          checkpoint: path of a checkpoint of the same networks, as `save` returns it.
          policy: name of the policy, if the run has several that learn.

        Returns:
          The checkpoint's learner step.
        """
        return self._learner(policy, "restore", str(pathlib.Path(named_path(checkpoint, "checkpoint")).absolute()))

    def get_weights(self, policy: str | None = None) -> dict[str, np.ndarray]:
        """Returns a policy's current weights, by name; after the end of the run, those of its last checkpoint.

        Args:
          policy: name of the policy, if the run has several that learn.
        """
        try:
            return self._learner(policy, "get_weights")
        except SessionEnded:
            saved = read_policy(_last_checkpoint(_policy_run(self._run, policy)) / "policy.npz")
            return dict(zip(saved.names, saved.values, strict=True))

    def set_weights(self, weights: Mapping[str, np.ndarray], policy: str | None = None) -> None:
        """Assigns weights by name; those that are not named keep their values.

        Args:
          weights: values by name.
          policy: name of the policy, if the run has several that learn.
        """
        if not isinstance(weights, Mapping):
            raise CallboardError(f"weights must be arrays by name, as get_weights returns them, not {shown(weights)}")
        arrays = {name: np.asarray(value) for name, value in weights.items()}
        self._learner(policy, "set_weights", arrays)

    @exits_refused()
    def update(self, task: Any = None, policy: str | None = None, **settings: float) -> None:
        """Changes what may change in a run; it stays so when the run is resumed.

        Args:
          task: the environments' task from their next episodes on, see docs/guides/curriculum.md; None changes nothing.
            An environment is made to check that it takes the task.
          policy: name of the policy whose settings change, if the run has several that learn.
          **settings: settings of the agent that are in its `live`, such as `entropy_cost`.  `learning_rate` changes all
            learning rates; `**{"optimizer.learning_rate": 1e-4}` names one.
        """
        changes = {}
        if settings:
            policy_run = _policy_run(self._run, policy)
            live = live_changes(policy_run.agent, settings)
            changes = {metric_of(policy_run.policy, name): value for name, value in live.items()}
        experiment = self._run.experiment
        if changes and experiment.learners > 1:
            raise CallboardError(
                f"settings of {experiment.learners} learners cannot be changed while they learn; set learners to 1, or "
                "change them with resume=True"
            )
        if task is not None:
            task = plain_task(task)
            check_tasks(experiment, [task])
            self._running().call("set_task", task)
        if changes:
            self._running().call("change_settings", changes)

    def for_each_environment(self, function: Callable[[Any], T]) -> list[T]:
        """Calls a function with every training environment, between two of its steps.

        Args:
          function: called where the environment is, perhaps on another machine, with an environment of the library that
            it is from.  A batch whose environments are not separate objects is passed as a whole, once.

        Returns:
          The results by slot.

        Raises:
          CallboardError: the function raised in an environment; the log of the actor has the traceback.
        """
        if self._run.experiment.policy_server is not None:
            raise CallboardError("the environments of a policy server are elsewhere: no function can be called on them")
        results = _in_each_actor(self._running(), "for_each_environment", function)
        return [result for of_actor in results for result in of_actor]

    def for_each_actor(self, function: Callable[[ActorView], T]) -> list[T]:
        """Calls a function with every actor, between two of its steps.

        Args:
          function: called in the actor's process, perhaps on another machine, with what it has: its index, its
            environments and its policy.

        Returns:
          The results by the index of the actor.

        Raises:
          CallboardError: the function raised in an actor, whose log has the traceback.
        """
        if self._run.experiment.policy_server is not None:
            raise CallboardError("a policy server has no actors on which a function could be called")
        return _in_each_actor(self._running(), "for_each_actor", function)

    def stop(self, reason: str = "stopped by its session") -> None:
        """Ends the run as at a limit, with a checkpoint.

        Args:
          reason: why, as the run's outcome gives it.
        """
        check_reason(reason)
        with contextlib.suppress(SessionEnded):
            self._running().call("request_stop", reason)
        self._running().join()

    def _learner(self, policy: str | None, method: str, *arguments: Any) -> Any:
        """Executes a command in the learner of a policy and returns its result."""
        learner = _policy_run(self._run, policy).name_of("learner", 0)
        return self._running().command([learner], method, *arguments)[learner]

    @property
    def _run(self) -> Run:
        return self._running().prepared.run

    def _running(self) -> BackgroundRun:
        """Returns the run.

        Raises:
          CallboardError: it was not started.
        """
        if self._background is None:
            raise CallboardError("the session was not started: use it in a with block, or call start()")
        return self._background


def _in_each_actor(running: BackgroundRun, method: str, function: Callable[..., Any]) -> list[Any]:
    """Executes a command in all actors, with a function of the user; returns their results by index."""
    if not callable(function):
        raise CallboardError(f"{method} needs a function of an {method.rpartition('_')[2]}, not {function!r}")
    actors = [f"actor/{index}" for index in range(running.prepared.run.experiment.actors)]
    replies = running.command(actors, method, function)
    return [replies[actor] for actor in actors]


def _policy_run(run: Run, policy: str | None) -> Run:
    """Returns the run of a policy, see `Run.of_policy`; None is the only one.

    Raises:
      CallboardError: the name is unknown, or there are several and none is named.
    """
    if policy is None:
        if len(run.policies) > 1:
            raise CallboardError(f"name one of the policies that learn: policy={next(iter(run.policies))!r}, ...")
        return run.policy_runs[0]
    check_type("policy", policy, str, "the name of a policy")
    if policy not in run.policies:
        if ONLY_AGENT in run.policies:
            raise CallboardError(f"the run has one policy, without a name: leave out policy={policy!r}")
        raise unknown("policy", policy, run.policies)
    return run.of_policy(policy)


def _last_checkpoint(policy_run: Run) -> pathlib.Path:
    """Returns the newest checkpoint in the run directory of this machine.

    Raises:
      SessionEnded: there is none.
    """
    latest = Checkpoints(policy_run.directory).latest()
    if latest is None:
        raise SessionEnded(f"the run has ended, and {policy_run.directory.path} has no checkpoint")
    return latest


def _raise_stopped(number: int) -> None:
    raise Stopped(number)
