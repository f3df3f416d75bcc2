"""Entry point of a node that runs in a separate process."""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from ...nodes.node import LaunchedNode, NodeContext
from ...nodes.progress import HEARTBEAT, HeartbeatSender
from ...processes.stop_signals import pass_on_signals
from ..supervision.supervisor import Exit
from .prepared_process import exit_by, prepare_process


class ChildSettings(NamedTuple):
    """Arguments with which a node's process is started."""

    node: LaunchedNode
    incarnation_id: str
    port: int | None
    log: str
    """Path of the node's log file."""
    temporary: str
    """Directory for temporary files."""


def run_child(pickled: bytes, pipe: Connection) -> None:
    """Runs a node; its messages go through `pipe`, its output into its log.

    Always ends the process explicitly, because a thread blocked in C++ would keep it alive forever.
    """
    code = 1
    send = _Sender(pipe)
    # If all processes are signaled at once, only the launcher decides what follows; it is notified in case it was not
    # signaled itself.
    pass_on_signals(lambda number: send("signal", number))
    try:
        settings: ChildSettings = cloudpickle.loads(pickled)
        prepare_process(settings.node.name, settings.node.rules, settings.log, settings.temporary)
        _run_node(settings, pipe, send)
        # If the forkserver has died, no other process can report the exit.
        send("exit", Exit(clean=True, description="ended"))
        code = 0
    except BaseException as error:
        send("exit", exit_by(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_node(settings: ChildSettings, pipe: Connection, send: "_Sender") -> None:
    stop = threading.Event()
    context = NodeContext(
        name=settings.node.name,
        incarnation_id=settings.incarnation_id,
        stop=stop,
        send=send,
        port=settings.port,
    )
    HeartbeatSender(context.progress, context.send)
    threading.Thread(target=_listen, args=(pipe, context), name="launcher", daemon=True).start()
    try:
        settings.node.run_node(context)
    finally:
        send(HEARTBEAT, context.progress.heartbeat())


def _listen(pipe: Connection, context: NodeContext) -> None:
    """Waits for the launcher's messages; exits if the launcher is gone."""
    try:
        while True:
            message = pipe.recv()
            if message == "stop":
                context.stop.set()
            elif message[0] == "hosts":
                context.guard.allow(message[1])
    except (EOFError, OSError):
        os._exit(1)


class _Sender:
    """Sends messages to the launcher, from any thread."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._lock = threading.Lock()

    def __call__(self, kind: str, content: Any) -> None:
        try:
            with self._lock:
                self._pipe.send((kind, content))
        except OSError:
            pass  # The launcher is gone, and this process is about to exit.
