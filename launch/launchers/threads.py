"""The threads launcher: every node in its own thread, with Courier and Reverb connections as between processes."""

import functools
import queue
import threading
import uuid
from collections.abc import Callable
from typing import Any

import launchpad as lp

from ..experiments.checked_run import Run
from ..experiments.run_files import begun
from ..nodes.node import NodeContext
from ..nodes.progress import HEARTBEAT, HeartbeatSender
from ..program_nodes import nodes_of
from .addresses import reserved_ports
from .node_processes.prepared_process import exit_by
from .one_process_logs import logged_in
from .run_outcome import Monitor, Outcome
from .supervision.supervisor import Event, Exit, Supervised, Supervisor


class ThreadWorker:
    """One incarnation of a node, in a thread.  A thread cannot be killed: one that does not end is left behind.

    Args:
      name: name of the node.
      run_node: runs the node to its end.
      port: the port that the node binds; None if it binds none.
      events: the supervisor's queue.
    """

    def __init__(
        self,
        name: str,
        run_node: Callable[[NodeContext], None],
        port: int | None,
        events: "queue.SimpleQueue[Event]",
    ):
        self._name = name
        self._events = events
        self._context = NodeContext(
            name=name,
            incarnation_id=uuid.uuid4().hex,
            stop=threading.Event(),
            send=self._send,
            port=port,
            one_process=True,
        )
        self._thread = threading.Thread(target=run_reported, args=(run_node, self._context), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._context.stop.set()

    def kill(self) -> None:
        self._context.stop.set()
        self._send("exit", Exit(clean=False, description="left behind in its thread"))

    def _send(self, kind: str, content: Any) -> None:
        self._events.put(Event(self._name, kind, content))


def run_reported(run_node: Callable[[NodeContext], None], context: NodeContext) -> Exit:
    """Runs a node to its end with heartbeats; sends how it ended, and returns it."""
    heartbeats = HeartbeatSender(context.progress, context.send)
    try:
        run_node(context)
        how = Exit(clean=True, description="ended")
    except BaseException as error:
        how = exit_by(error)
    # A failed node may have started threads, which must not continue next to those of its next incarnation.
    context.stop.set()
    heartbeats.close()
    context.send(HEARTBEAT, context.progress.heartbeat())
    context.send("exit", how)
    return how


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Runs the program to its end, in threads of this process."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with reserved_ports(program) as ports, begun(run), logged_in(run):
        nodes = [
            Supervised(
                node.name,
                node.rules,
                functools.partial(ThreadWorker, node.name, node.run_node, ports[node.name], events),
                can_be_killed=False,
            )
            for _, node in nodes_of(program)
        ]
        return Supervisor(nodes, events, monitor).run()
