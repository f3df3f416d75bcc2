"""The processes launcher: every node in a supervised process of its own.

TensorFlow is imported once, in a forkserver; a node is a fork of it and starts within a fraction of a second.
"""

import contextlib
import functools
import queue
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import launchpad as lp

from ..experiment import Run
from ..program import nodes_of
from ..role import RoleNode
from ..run_directory import RunDirectory
from ..run_files import begun
from .addresses import reserved_ports
from .child import ChildSettings, run_child
from .forkserver import forkserver_context, stop_forkserver
from .outcome import Monitor, Outcome
from .supervisor import Event, Exit, OtherHosts, Supervised, Supervisor


class ProcessWorker:
    """One life of a node in a process."""

    def __init__(
        self,
        node: RoleNode,
        port: int,
        run_directory: RunDirectory,
        events: "queue.SimpleQueue[Event]",
        environment: Mapping[str, str],
    ):
        self._node = node
        self._settings = ChildSettings(
            node=node,
            identity=uuid.uuid4().hex,
            port=port,
            log=str(run_directory.log(node.name)),
            temporary=str(run_directory.temporary),
            environment=environment,
        )
        self._events = events
        self._process: Any = None
        self._pipe: Any = None

    def start(self) -> None:
        context = forkserver_context()
        self._pipe, child_end = context.Pipe()
        pickled = cloudpickle.dumps(self._settings)
        self._process = context.Process(target=run_child, args=(pickled, child_end), name=self._node.name)
        with _main_not_run_again():
            self._process.start()
        child_end.close()
        threading.Thread(target=self._listen, name=f"pipe of {self._node.name}", daemon=True).start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send("stop")

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()

    def _listen(self) -> None:
        """Passes on what the child says; when its pipe ends, the child is dead or about to be."""
        how: Exit | None = None
        try:
            while True:
                kind, content = self._pipe.recv()
                if kind == "exit":
                    how = content
                else:
                    self._events.put(Event(self._node.name, kind, content))
        except (EOFError, OSError):
            pass
        # A server of the old process must be gone before a new one binds its port.
        self._process.join(5.0)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._pipe.close()
        self._events.put(Event(self._node.name, "exit", how or _exit_of(self._process.exitcode)))


def _exit_of(code: int) -> Exit:
    if code == 0:
        return Exit(clean=True, description="ended")
    if code < 0:
        return Exit(clean=False, description=f"killed by {signal.Signals(-code).name}")
    return Exit(clean=False, description=f"ended with exit code {code}")


def run(program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
    """Runs the program to its end, in processes of this machine.

    Every node's output goes to a file of its own under `logs/`.
    """
    with reserved_ports(program) as ports, begun(run):
        return run_nodes([node for _, node in nodes_of(program)], ports, run.directory, monitor, queue.SimpleQueue())


def run_nodes(
    nodes: Sequence[RoleNode],
    ports: Mapping[str, int],
    run_directory: RunDirectory,
    monitor: Monitor,
    events: "queue.SimpleQueue[Event]",
    others: OtherHosts | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs some nodes of a program in processes of this machine, to the end of the run.

    Args:
      nodes: their addresses, and those of all nodes that they call, are bound.
      ports: the reserved port of each node, by its name.
      run_directory: of the run.
      monitor: is told what happens.
      events: the queue of the supervisor.
      others: the hosts of the program's other nodes.
      environment: variables of the nodes' processes.
    """
    supervised = [
        Supervised(
            node.name,
            node.policy,
            functools.partial(ProcessWorker, node, ports[node.name], run_directory, events, environment or {}),
        )
        for node in nodes
    ]
    try:
        return Supervisor(supervised, events, monitor, others).run()
    finally:
        stop_forkserver()


@contextlib.contextmanager
def _main_not_run_again() -> Iterator[None]:
    """Keeps `multiprocessing` from running the user's main script again in every child: nothing there is needed."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__file__", "__spec__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)
