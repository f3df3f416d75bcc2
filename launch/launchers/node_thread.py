"""A node that runs in a thread of the process that supervises it."""

import queue
import threading
import uuid
from collections.abc import Callable
from typing import Any

from ..nodes.node import NodeContext
from ..nodes.progress import HEARTBEAT, HeartbeatSender
from .node_processes.prepared_process import exit_by
from .supervision.supervisor import Event, Exit


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
        self._run_node = run_node
        self._events = events
        self._context = NodeContext(
            name=name,
            incarnation_id=uuid.uuid4().hex,
            stop=threading.Event(),
            send=self._send,
            port=port,
            one_process=True,
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._context.stop.set()

    def kill(self) -> None:
        self._context.stop.set()
        self._send("exit", Exit(clean=False, description="left behind in its thread"))

    def _send(self, kind: str, content: Any) -> None:
        self._events.put(Event(self._name, kind, content))

    def _run(self) -> None:
        heartbeats = HeartbeatSender(self._context.progress, self._send)
        try:
            self._run_node(self._context)
            how = Exit(clean=True, description="ended")
        except BaseException as error:
            how = exit_by(error)
        # A failed node may have started threads, which must not continue next to those of its next incarnation.
        self._context.stop.set()
        heartbeats.close()
        self._send(HEARTBEAT, self._context.progress.heartbeat())
        self._send("exit", how)
