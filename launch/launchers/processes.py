"""The processes launcher: every node in its own supervised process.

TensorFlow is imported once, in a forkserver; a node is forked from it and starts within a fraction of a second.
"""

import contextlib
import functools
import queue
import threading
import uuid
from collections.abc import Mapping, Sequence

import cloudpickle
import launchpad as lp

from ...errors import signal_name
from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..nodes.node import LaunchedNode
from ..program_nodes import nodes_of
from ..run_directory.layout import RunDirectory
from .addresses import reserved_ports
from .gpu_placement import place_on_gpus
from .node_processes.forkserver import ForkedProcess, fork_process, stop_forkserver, wait_for_any
from .node_processes.forkserver_watch import ForkserverWatch
from .node_processes.node_process import ChildSettings, run_child
from .run_outcome import Monitor, Outcome, error_text
from .supervision.other_hosts import OtherHosts
from .supervision.supervisor import Event, Exit, Supervised, Supervisor

_LAST_SECONDS = 5.0


class ProcessWorker:
    """One incarnation of a node, in a process."""

    def __init__(
        self,
        node: LaunchedNode,
        port: int | None,
        run_directory: RunDirectory,
        events: "queue.SimpleQueue[Event]",
    ):
        self._node = node
        self._settings = ChildSettings(
            node=node,
            incarnation_id=uuid.uuid4().hex,
            port=port,
            log=str(run_directory.log(node.name)),
            temporary=str(run_directory.temporary),
        )
        self._events = events
        self._lock = threading.Lock()
        self._process: ForkedProcess | None = None
        self._hosts: tuple[str, ...] = ()
        self._over = False
        """Whether the exit was reported."""

    def start(self) -> None:
        # In a thread, because the forkserver may still be importing.
        threading.Thread(target=self._follow, name=f"incarnation of {self._node.name}", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            if self._process is None:
                self._end(Exit(clean=True, description="ended before it began"))
                return
        with contextlib.suppress(OSError):
            self._process.pipe.send("stop")

    def kill(self) -> None:
        with self._lock:
            if self._process is None:
                self._end(Exit(clean=False, description="ended before it began"))
                return
        self._process.kill()

    def allow(self, hosts: Sequence[str]) -> None:
        with self._lock:
            self._hosts = tuple(hosts)
            if self._process is not None:
                self._send_hosts()

    def _send_hosts(self) -> None:
        if self._hosts and self._process is not None:
            with contextlib.suppress(OSError):
                self._process.pipe.send(("hosts", self._hosts))

    def _follow(self) -> None:
        """Starts the process and forwards its messages until it ends."""
        try:
            process = fork_process(run_child, cloudpickle.dumps(self._settings))
        except Exception as error:
            with self._lock:
                self._end(Exit(clean=False, description="cannot be started", error=error_text(error), final=True))
            return
        with self._lock:
            self._process = process
            self._send_hosts()
            unwanted = self._over
        if unwanted:
            process.kill()
        how = self._listen(process)
        if not process.join(_LAST_SECONDS):
            # A server of the old process must be gone before a new one binds its port.
            process.kill()
            process.join()
        process.pipe.close()
        with self._lock:
            self._end(how or _exit_of(process.exitcode))

    def _listen(self, process: ForkedProcess) -> Exit | None:
        """Forwards the messages of the process until it has ended or is about to; returns how, if it was reported."""
        how: Exit | None = None
        while True:
            # The end of the process does not close the pipe if processes that it started still hold it open.
            wait_for_any(process)
            ended = process.join(0.0)
            try:
                while process.pipe.poll():
                    kind, content = process.pipe.recv()
                    if kind == "exit":
                        how = content
                    else:
                        self._events.put(Event(self._node.name, kind, content))
            except (EOFError, OSError):
                return how
            if ended:
                return how

    def _end(self, how: Exit) -> None:
        if not self._over:
            self._over = True
            self._events.put(Event(self._node.name, "exit", how))


def _exit_of(code: int | None) -> Exit:
    if code is None:
        return Exit(clean=False, description="ended, and with it the forkserver, which knew how")
    if code == 0:
        return Exit(clean=True, description="ended")
    if code < 0:
        return Exit(clean=False, description=f"killed by {signal_name(-code)}")
    return Exit(clean=False, description=f"ended with exit code {code}")


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Runs the program to its end, in processes on this machine.

    The output of each node goes to its own file under `logs/`.
    """
    with reserved_ports(program) as ports, begun(run):
        nodes = [node for _, node in nodes_of(program)]
        place_on_gpus(nodes, run.placement.learner_devices)
        return run_nodes(nodes, ports, run.directory, monitor, queue.SimpleQueue())


def run_nodes(
    nodes: Sequence[LaunchedNode],
    ports: Mapping[str, int | None],
    run_directory: RunDirectory,
    monitor: Monitor,
    events: "queue.SimpleQueue[Event]",
    others: OtherHosts | None = None,
) -> Outcome:
    """Runs some nodes of a program in processes on this machine, until the run ends.

    Args:
      nodes: the nodes.  Their addresses, and those of all nodes that they call, are bound.
      ports: the reserved port of each node's first address, by the node's name; None without addresses.
      run_directory: the directory of the run.
      monitor: receives status and messages.
      events: the supervisor's queue.
      others: the hosts of the program's other nodes.
    """
    supervised = [
        Supervised(
            node.name,
            node.rules,
            functools.partial(ProcessWorker, node, ports[node.name], run_directory, events),
        )
        for node in nodes
    ]
    watch = ForkserverWatch(lambda text: events.put(Event("", "line", text)))
    try:
        return Supervisor(supervised, events, monitor, others).run()
    finally:
        watch.close()
        stop_forkserver()
