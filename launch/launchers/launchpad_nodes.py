"""The nodes of the graph as nodes of a genuine Launchpad program: `lp.launch` alone runs them.

Launchpad starts all nodes at once, restarts none, and ends all of them ten seconds after it has requested them to
stop.  A run needs more: its nodes end in order, so that the last checkpoint contains everything.  Therefore the
coordinator's process supervises the others, by the same `Supervisor` as under other launchers, without restarts.  Each
node reports to it (`launchpad_supervision`), and it stops Launchpad's program once all have ended.
"""

import atexit
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import queue
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

import launchpad as lp
import psutil

from ...errors import printable_lines
from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..nodes.node import NodeContext, NodeRules, ProgramNode
from ..nodes.proxy_bypass import bypass_proxies
from ..processes.devices import take_devices
from ..run_directory.run_lock import hold_as_remains
from .gpu_placement import place_on_gpus
from .launcher import locked
from .launchpad import LaunchpadLauncher
from .launchpad_supervision import LaunchpadWorker, LaunchpadWorkers, SupervisorConnection, is_running
from .node_processes.prepared_process import prepare_process
from .run_outcome import Monitor, Outcome, OutputClosed
from .screen.display import LineMonitor
from .screen.run_summary import SummaryMonitor, describe_end
from .supervision.remote_monitor import MonitorClient
from .supervision.supervisor import Event, Supervised, Supervisor, Worker
from .threads import ThreadWorker, run_reported

_ONE_PROCESS = (lp.LaunchType.LOCAL_MULTI_THREADING, lp.LaunchType.TEST_MULTI_THREADING)
_WATCH_SECONDS = 0.2
_STOPPED = Outcome(reason="stopped by Launchpad", exit_code=143)
_LEFT = Outcome(reason="the process that launched it has ended", exit_code=143)


class GraphNode(ProgramNode):
    """A node of the graph; under Launchpad's own launchers it reports to the coordinator's process."""

    def run(self) -> None:
        """Runs the node under one of Launchpad's own launchers."""
        one_process = self._begin()
        stop = threading.Event()
        connection = SupervisorConnection(self.name, self._arguments["coordinator"], stop, lp.stop_event())
        context = NodeContext(
            name=self.name,
            incarnation_id=uuid.uuid4().hex,
            stop=stop,
            send=connection.send,
            port=self._port(),
            one_process=one_process,
        )
        connection.start()
        how = run_reported(self.run_node, context)
        delivered = connection.close()
        # The supervisor ends the run in order; where there is none any more, Launchpad does at once.
        self._end(f"{self.name} failed: {how.description}" if not (how.clean or delivered) else "")

    def _begin(self) -> bool:
        """Prepares the process, unless it is shared by all nodes; returns whether it is."""
        bypass_proxies()
        one_process = self.launch_context.launch_type in _ONE_PROCESS
        if not one_process:
            prepare_process(self.name, self.rules, None, str(self._run.directory.temporary))
        return one_process

    def _end(self, error: str) -> None:
        """Ends the process, unless it is shared by all nodes, because threads in C++ may keep it alive.

        Args:
          error: what has failed; empty if nothing has.

        Raises:
          RuntimeError: with that error; Launchpad then stops the other nodes.
        """
        if self.launch_context.launch_type not in _ONE_PROCESS:
            _leave(error)
        if error:
            raise RuntimeError(error)

    def _port(self) -> int:
        return lp.get_port_from_address(self.addresses[0].resolve())

    @property
    def _run(self) -> Run:
        return self._arguments["run"]


class SupervisingNode(GraphNode):
    """The coordinator; under Launchpad's own launchers its process supervises the other nodes.

    `monitor_address` is the address of a `MonitorServer`, set by a launcher that prepares the run directory itself.
    Without it, the coordinator's process prints the progress, and Launchpad's process prepares the directory.

    `signals_launchpad` says whether Launchpad handles the signal with which a program is stopped: it does not where it
    was called in another thread than the main one.  All nodes have ended by then.
    """

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.monitor_address = ""
        self.signals_launchpad = True
        self._launching_process = 0
        self._others: dict[str, NodeRules] = {}
        self._graph: Sequence[ProgramNode] = ()

    def supervise(self, nodes: Sequence[ProgramNode]) -> None:
        """Sets the other nodes of the graph."""
        self._others = {node.name: node.rules for node in nodes}
        self._graph = nodes

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not need the whole graph.
        return {**self.__dict__, "_graph": ()}

    @staticmethod
    def to_executables(nodes: Sequence["SupervisingNode"], label: str, context: Any) -> Any:
        """Called by Launchpad in the process that launches, before it starts any node."""
        for node in nodes:
            node._launching_process = os.getpid()
            if context.launch_type not in _ONE_PROCESS:
                place_on_gpus(node._graph, node._run.placement.learner_devices)
            node._prepare_run(context.launch_type)
        return GraphNode.to_executables(nodes, label, context)

    def run(self) -> None:
        one_process = self._begin()
        stop, address = lp.stop_event(), self.monitor_address
        monitor = MonitorClient(address, self._is_wanted) if address else _TerminalMonitor(self._run)
        # Not in the main thread: there the supervisor would take over the signals, to which Launchpad reacts.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(self._supervise, monitor, stop).result()
        monitor.complete(outcome)
        failed = ""
        # A launcher with a monitor shows the error; outside the main thread, only an error ends the program.
        if outcome.failed_node is not None and not (self.monitor_address and self.signals_launchpad):
            *_, reason = ["", *(outcome.error or "").splitlines()]
            failed = f"{outcome.failed_node} failed: {reason}"
        # Launchpad ignores errors of a program that it is stopping; where it sees one, it stops the program by itself.
        wanted = self.signals_launchpad and self._is_wanted()
        if wanted and not stop.is_set() and not (failed and one_process):
            self.launch_context.program_stopper()
        self._end(failed)

    def _supervise(self, monitor: Monitor, stop: threading.Event) -> Outcome:
        """Runs the coordinator in a thread, supervises all nodes until the end of the run, and returns how it ended.

        Args:
          monitor: receives status and messages.
          stop: set when Launchpad stops the program.
        """
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        workers = {name: LaunchpadWorker(name, events) for name in self._others}
        launchpad_workers = LaunchpadWorkers(workers)
        port = self._port()

        def coordinate(context: NodeContext) -> None:
            self.run_node(context, also_served=[launchpad_workers.take_messages])

        def worker_of(name: str) -> Worker:
            return workers.get(name) or ThreadWorker(name, coordinate, port, events)

        can_be_killed = self.launch_context.launch_type not in _ONE_PROCESS
        supervised = [
            Supervised(
                name,
                dataclasses.replace(rules, restarts=0),
                functools.partial(worker_of, name),
                can_be_killed and name in workers,
            )
            for name, rules in {self.name: self.rules, **self._others}.items()
        ]
        over = threading.Event()

        def watch() -> None:
            held = False
            while not over.wait(_WATCH_SECONDS):
                launchpad_workers.check_processes()
                if stop.is_set():
                    events.put(Event("", "outcome", _STOPPED))
                elif not self._is_wanted():
                    held = held or hold_as_remains(self._run.directory.lock())
                    events.put(Event("", "outcome", _LEFT))

        threading.Thread(target=watch, name="watch", daemon=True).start()
        try:
            return Supervisor(supervised, events, monitor).run()
        finally:
            over.set()

    def _is_wanted(self) -> bool:
        """Returns whether the process that launched the program is running; one that was killed stops no node."""
        try:
            return is_running(psutil.Process(self._launching_process))
        except psutil.NoSuchProcess:
            return False

    def _prepare_run(self, launch_type: lp.LaunchType) -> None:
        """Checks the run and opens its directory, until this process ends, unless a launcher has done so."""
        if self.monitor_address:
            return
        launcher = LaunchpadLauncher("local_mt" if launch_type in _ONE_PROCESS else "local_mp")
        launcher.check(self._run.experiment)
        if launcher.in_this_process:
            take_devices(self._run.placement.learner_devices, self._run.placement.gpu_use)
        files = contextlib.ExitStack()
        # Launchpad waits for the nodes in functions that are called earlier at the exit.
        atexit.register(files.close)
        files.enter_context(locked(self._run.directory, self._run.directory.lock(), launcher.name))
        directory = self._run.directory.identified()
        for node in (self, *self._graph):
            node.move_to(directory)
        files.enter_context(begun(self._run))


class _TerminalMonitor(SummaryMonitor):
    """Prints the progress of a run and how it ended, where no launcher of ours does."""

    def __init__(self, run: Run):
        super().__init__(run, LineMonitor(run.limits.max_steps))
        self._evaluation_episodes = run.evaluation.evaluation_episodes

    def complete(self, outcome: Outcome) -> Outcome:
        super().complete(outcome)
        text = describe_end(outcome, self._evaluation_episodes)
        if outcome.failed_node is not None:
            text = f"{outcome.failed_node} failed:\n{(outcome.error or '').rstrip()}"
        with contextlib.suppress(OutputClosed):
            self.notify(text)
        return outcome


def _leave(error: str) -> NoReturn:
    if error:
        sys.stderr.write(f"{printable_lines(error)}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if error else 0)
