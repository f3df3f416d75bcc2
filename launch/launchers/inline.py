"""The inline launcher: all nodes in one thread of one process, with an in-process Reverb server.

The result depends only on the experiment: an agent that reads a queue produces bit-identical weights in every run with
the same seed.
"""

import contextlib
import functools
import itertools
import math
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import launchpad as lp

from ...errors import CallboardError, ControlFlow, one_line, printable_lines
from ...messages.caller_words import argument
from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..node_names import policy_of
from ..nodes.acting.environment_node import EnvironmentNode
from ..nodes.coordination.coordinator import Coordinator
from ..nodes.evaluation.evaluator import EvaluatorNode
from ..nodes.inference.inference import InferenceNode
from ..nodes.learning.learner import LearnerNode
from ..nodes.node import FixedAddress, Node, NodeContext, ProgramNode
from ..nodes.recorded.feeder import FeederNode
from ..nodes.recorded.recorder import RecorderNode
from ..nodes.replay import ReplayNode
from ..nodes.reports.reporting import ReportingNode
from ..processes.stop_signals import stop_signals
from ..program_nodes import nodes_of
from .launcher import REPORT_STEPS
from .one_process_logs import logged_in
from .run_outcome import GuardedMonitor, Monitor, Outcome, error_text
from .supervision.progress_watchdog import Overdue
from .supervision.supervisor import SIGNAL_SECONDS
from .supervision.turn_watch import TurnWatch

_PAUSE_SECONDS = 0.005
"""Interval at which a run that its session has paused checks whether it may continue."""
_UNWIND_SECONDS = 10.0
"""How long a node that hangs may take to react to an exception before the process is ended."""
_PATIENCE_SECONDS = 15.0
"""How long after a signal an environment may take for what it has begun, until that is left as at a second signal."""


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Runs the program to its end in this thread.

    Raises:
      CallboardError: the program has a node of the user's own.
    """
    for _, node in nodes_of(program):
        if not isinstance(node, ProgramNode):
            raise CallboardError(
                f"the inline launcher has one thread, which {node.name} would block; use "
                f"{argument('launcher', 'threads')} or {argument('launcher', 'processes')}"
            )
    stop = threading.Event()
    outcome = Outcome()

    def give_up(error: BaseException) -> None:
        if not outcome.ended:
            outcome.failed("launcher", error_text(error))
        stop.set()

    monitor = GuardedMonitor(monitor, give_up)

    def send(name: str, kind: str, content: Any) -> None:
        if kind == "stop":
            outcome.reached_limit(content)
            stop.set()
        elif kind == "status":
            monitor.status(content)
        elif kind == "message":
            monitor.notify(f"{name}: {content}")

    signals = _Signals()

    def interrupt(signal_number: int) -> None:
        outcome.interrupted(signal_number)
        stop.set()
        interrupted.set()
        signals.add()

    def leave_environment() -> None:
        interrupted.wait()
        if not over.wait(_PATIENCE_SECONDS) and isinstance(roles.get(current), EnvironmentNode | EvaluatorNode):
            signals.hurry(0.0)

    def end_patience() -> None:
        over.set()
        interrupted.set()
        patience.join()

    def end_hanging(overdue: Overdue) -> None:
        instead = argument("launcher", "processes")
        error = f"{overdue.why}, and a node in the run's only thread cannot be killed; use {instead}"
        outcome.failed(overdue.node, error)
        stop.set()
        if in_main_thread and not signals.hurry(_UNWIND_SECONDS):
            # No Python code runs in that thread any more; only the end of the process ends it.
            print(printable_lines(f"{overdue.node} failed: {error}"), file=sys.stderr, flush=True)
            shutil.rmtree(run.directory.temporary, ignore_errors=True)
            for left in (run.directory.lock(), run.directory.socket, run.directory.coordinator):
                left.unlink(missing_ok=True)
            os._exit(1)

    current, roles = "", dict[str, Node]()
    interrupted, over = threading.Event(), threading.Event()
    patience = threading.Thread(target=leave_environment, name="patience", daemon=True)
    in_main_thread = threading.current_thread() is threading.main_thread()
    timeouts = {node.name: node.rules.timeout for _, node in nodes_of(program)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(begun(run))
        stack.enter_context(logged_in(run))
        stack.enter_context(stop_signals(interrupt))
        if in_main_thread:
            patience.start()
            stack.callback(end_patience)
        roles = make_local_nodes(program, stop, send)
        watch = TurnWatch(
            lambda: (current, roles[current].context.progress, timeouts[current]) if current else None,
            monitor.notify,
            end_hanging,
        )
        ready: list[Node] = []
        try:
            with signals.hurrying():
                for current in roles:
                    roles[current].setup()
                    ready.append(roles[current])
                for whose_turn in _play(list(roles.values()), stop):
                    current = whose_turn
        except BaseException as error:
            outcome.failed(current, error_text(error))
            stop.set()
        for _, node in sorted(nodes_of(program), key=lambda labeled: labeled[1].rules.stop_order):
            role = roles[node.name]
            if role not in ready or (node.name == outcome.failed_node and not isinstance(role, EnvironmentNode)):
                # What a learner would save after an error may be damaged; an actor still has its counts to report.
                continue
            current = node.name
            try:
                role.finish()
            except BaseException as error:
                if outcome.failed_node is None:
                    outcome.failed(current, error_text(error))
                elif one_line(error) != outcome.error:
                    monitor.notify(f"{current}: {one_line(error)}")
        watch.close()
        if outcome.failed_node is not None:
            # Otherwise the replay server prints messages of its own after the error when the process exits.
            for role in roles.values():
                role.release()
    return outcome


class _Hurried(ControlFlow):
    """Raised when a second signal arrives in the middle of what a node does."""


class _Signals:
    """Counts signals; signals that arrive at nearly the same time count as one."""

    def __init__(self) -> None:
        self._count = 0
        self._last = -math.inf
        self._hurrying = False
        self._left = threading.Event()

    def hurry(self, timeout: float) -> bool:
        """Called by another thread to leave the `with` block of `hurrying` as by a second signal.

        Args:
          timeout: how long to wait for that, in seconds.

        Returns:
          Whether the block was left.
        """
        self._count, self._last = 1, -math.inf
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return self._left.wait(timeout)

    def add(self) -> None:
        now = time.monotonic()
        if now - self._last > SIGNAL_SECONDS:
            self._count += 1
            self._last = now
            if self._hurrying and self._count > 1:
                raise _Hurried

    @contextlib.contextmanager
    def hurrying(self) -> Iterator[None]:
        """Leaves the `with` block at the second signal, without waiting for it to finish."""
        self._hurrying = True
        try:
            yield
        except _Hurried:
            pass
        finally:
            self._hurrying = False
            self._left.set()


def make_local_nodes(
    program: lp.Program, stop: threading.Event, send: Callable[[str, str, Any], None]
) -> dict[str, Node]:
    """Returns a program's nodes by name, in the order in which they are set up; they call each other directly.

    Args:
      program: the graph.
      stop: the stop event of all contexts.
      send: called with the name of a node, and the kind and content of the message that it sends.
    """
    roles: dict[str, Node] = {}
    for _, node in nodes_of(program):
        assert isinstance(node, ProgramNode)
        context = NodeContext(
            name=node.name,
            incarnation_id=uuid.uuid4().hex,
            stop=stop,
            send=functools.partial(_send_or_bind, node, send),
            port=None,
            cooperative=True,
            one_process=True,
        )
        roles[node.name] = role = node.make_node(context)
        for handle in node._created_handles:
            handle.bind_local(role)
    return roles


def _send_or_bind(node: ProgramNode, send: Callable[[str, str, Any], None], kind: str, content: Any) -> None:
    """Forwards a node's message, except for the port of its server, to which the node's address is bound."""
    if kind == "port":
        node.port_address.bind(FixedAddress(f"localhost:{content}"))
    else:
        send(node.name, kind, content)


def _play(roles: list[Node], stop: threading.Event) -> Iterator[str]:
    """Runs the nodes in turn; yields the name of the next node before it runs."""
    actors = [role for role in roles if isinstance(role, EnvironmentNode)]
    feeders = [role for role in roles if isinstance(role, FeederNode)]
    recorders = [role for role in roles if isinstance(role, RecorderNode)]
    inference = [role for role in roles if isinstance(role, InferenceNode)]
    evaluators = [role for role in roles if isinstance(role, EvaluatorNode)]
    learners = [role for role in roles if isinstance(role, LearnerNode)]
    (coordinator,) = [role for role in roles if isinstance(role, Coordinator)]
    writers: list[EnvironmentNode | FeederNode] = [*actors, *feeders]
    replays = {policy_of(role.context.name): role for role in roles if isinstance(role, ReplayNode)}
    limits = [_LearningLimit(learner, replays[policy_of(learner.context.name)]) for learner in learners]
    steps, limit, next_report = 0, coordinator.limits.steps_left, REPORT_STEPS
    fed, next_fed_report = 0, REPORT_STEPS
    reported_steps = 0
    turns: Iterator[EnvironmentNode] = itertools.cycle(actors)
    demonstrates = any(limit.has_demonstrations for limit in limits)
    while not stop.is_set():
        paused = any(learner.paused for learner in learners)
        # Demonstrations are written first, and once: nothing would take them while a feeder waits in the only thread.
        fills = demonstrates and not all(limit.is_filled() for limit in limits)
        for feeder in () if paused or (demonstrates and not fills) else feeders:
            yield feeder.context.name
            fed -= feeder.recorded_steps
            feeder.step()
            fed += feeder.recorded_steps
        if actors and steps < limit and not paused and not fills:
            actor = next(turns)
            yield actor.context.name
            steps -= actor.environment_steps
            actor.step()
            steps += actor.environment_steps
        for learner, learning in zip(learners, limits, strict=True):
            yield learner.context.name
            policy = policy_of(learner.context.name)
            while not (fills or stop.is_set() or learner.paused or learner.has_made_all_steps):
                if not learning.takes_batch(sum(writer.items_written_for(policy) for writer in writers)):
                    break
                learner.unreported_steps = steps - reported_steps
                if not learner.learn():
                    learning.misses_batch()
                    break
        finished = [learner for learner in learners if learner.has_made_all_steps]
        if coordinator.limits.rules.out_of_time or not _know_of(finished, [*writers, *inference]):
            limit = min(limit, steps)
        paused = any(learner.paused for learner in learners)
        # A learner also reports before it writes a checkpoint.
        learner_steps = sum(learner.learner_steps - learner.reported_learner_steps for learner in learners)
        coordinator.display.show_progress(steps - reported_steps, learner_steps)
        if steps >= min(next_report, limit) or fed >= next_fed_report or paused:
            reported_steps = steps
            for learner in learners:
                learner.unreported_steps = 0
            next_report += REPORT_STEPS if steps >= next_report else 0
            next_fed_report = fed + REPORT_STEPS
            for role in (*replays.values(), *inference, *writers, *recorders, *learners):
                yield role.context.name
                role.report()
            for replay in replays.values():
                yield replay.context.name
                replay.step()
            for learner in learners if coordinator.limits.stopping else finished:
                learner.end_learning()
            for evaluator in evaluators:
                yield evaluator.context.name
                evaluator.report()
                evaluator.step()
            yield coordinator.context.name
            coordinator.write_metrics()
            coordinator.step()
            limit = steps + coordinator.limits.steps_left
            states = [(policy_of(learner.context.name), learner.reporter.state.control) for learner in learners]
            if any(coordinator.limits.control_state(policy) != state for policy, state in states):
                # Changed in this turn: the nodes must know it before the next step.
                limit = steps
            elif coordinator.limits.paused:
                stop.wait(_PAUSE_SECONDS)


def _know_of(finished: list[LearnerNode], actors: Sequence[ReportingNode]) -> bool:
    """Returns whether all actors know that these learners have made their last step."""
    policies = [policy_of(learner.context.name) for learner in finished]
    return all(actor.reporter.learners_of(policy).have_finished for policy in policies for actor in actors)


class _LearningLimit:
    """When the rate limiter would release a batch, computed from the items inserted and the batches learned from.

    The limiter's own counter runs ahead because of prefetching.
    """

    def __init__(self, learner: LearnerNode, replay: ReplayNode):
        dataset = learner.replay.dataset
        self._batch = dataset.items_per_batch
        self._table = dataset.table
        self._limiter = replay.tables_at_start[self._table].rate_limiter_info
        # The limiter may let the learner run far ahead; in a single thread, the actors would wait all that time.
        first_samples = self._limiter.samples_per_insert * (self._limiter.min_size_to_sample - 1)
        self._reserve = max(self._limiter.min_diff, first_samples)
        # After a restore from a checkpoint, the counters do not start at zero.
        self._inserted = self._limiter.insert_stats.completed
        self._sampled = float(self._limiter.sample_stats.completed)
        self._replay = replay
        self._unfilled = set(dataset.further)
        self.has_demonstrations = bool(self._unfilled)
        """Whether the learner also takes items from a table of demonstrations."""

    def is_filled(self) -> bool:
        """Returns whether the table of demonstrations, if there is one, holds as many as sampling needs."""
        if self._unfilled:
            infos = self._replay.tables()
            self._unfilled = {
                name
                for name in self._unfilled
                if infos[name].current_size < infos[name].rate_limiter_info.min_size_to_sample
            }
        return not self._unfilled

    def takes_batch(self, written: int) -> bool:
        """Returns whether a batch may be learned from, and if so counts it.

        Args:
          written: items written by the actors in this run.
        """
        limiter, inserted = self._limiter, self._inserted + written
        sampled = self._sampled + self._batch
        if inserted < limiter.min_size_to_sample:
            return False
        if inserted * limiter.samples_per_insert - sampled < self._reserve:
            return False
        self._sampled = sampled
        return True

    def misses_batch(self) -> None:
        """Undoes the last count, because no batch came; what Reverb has sampled and lost is not waited for again.

        In the server's own process it loses samples now and then, where the machine is busy.
        """
        self._sampled -= self._batch
        try:
            now = self._replay.tables()[self._table].rate_limiter_info
        except Exception:  # The server is too busy.
            return
        inserted, sampled = now.insert_stats.completed, now.sample_stats.completed
        if inserted * now.samples_per_insert - sampled < now.min_diff + self._batch:
            self._sampled = max(self._sampled, float(sampled))
