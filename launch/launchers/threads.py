"""The threads launcher: every node in its own thread, with Courier and Reverb connections as between processes."""

import functools
import queue
import threading
import uuid
from typing import Any

import launchpad as lp

from ..experiment import Run
from ..nodes.node import LaunchedNode, NodeContext
from ..nodes.progress import HeartbeatSender
from ..program import nodes_of
from ..run_directory.run_files import begun
from .addresses import reserved_ports
from .process_setup import exit_by
from .run_outcome import Monitor, Outcome
from .supervisor import Event, Exit, Supervised, Supervisor


class ThreadWorker:
    """One incarnation of a node, in a thread.  A thread cannot be killed: one that does not end is left behind."""

    def __init__(self, node: LaunchedNode, port: int | None, events: "queue.SimpleQueue[Event]"):
        self._node = node
        self._events = events
        self._context = NodeContext(
            name=node.name,
            incarnation_id=uuid.uuid4().hex,
            stop=threading.Event(),
            send=self._tell,
            port=port,
            one_process=True,
        )
        self._thread = threading.Thread(target=self._run, name=node.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._context.stop.set()

    def kill(self) -> None:
        self._context.stop.set()
        self._tell("exit", Exit(clean=False, description="left behind in its thread"))

    def _tell(self, kind: str, content: Any) -> None:
        self._events.put(Event(self._node.name, kind, content))

    def _run(self) -> None:
        heartbeats = HeartbeatSender(self._context.progress, self._tell)
        try:
            self._node.run_node(self._context)
            how = Exit(clean=True, description="ended")
        except BaseException as error:
            how = exit_by(error)
        # A failed node may have started threads, which must not continue next to those of its next incarnation.
        self._context.stop.set()
        heartbeats.close()
        self._tell("exit", how)


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Run the program to its end, in threads of this process."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with reserved_ports(program) as ports, begun(run):
        nodes = [
            Supervised(
                node.name,
                node.policy,
                functools.partial(ThreadWorker, node, ports[node.name], events),
                can_be_killed=False,
            )
            for _, node in nodes_of(program)
        ]
        return Supervisor(nodes, events, monitor).run()
