"""The nodes of a program: the measured one in this process, the others in another process."""

import contextlib
import functools
import os
import pathlib
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Collection
from typing import Any

import cloudpickle

from ..launch.experiments.checked_run import Run
from ..launch.experiments.experiment import Experiment
from ..launch.experiments.run_checks import check_experiment
from ..launch.launchers.addresses import reserved_ports
from ..launch.nodes.node import Node, NodeContext, ProgramNode
from ..launch.program import make_program
from ..launch.program_nodes import nodes_of
from ..launch.run_directory.layout import RunDirectory
from ..replay import ReplayHandle
from .side import ServingProcess


class Nodes:
    """The nodes of a run.

    Args:
      experiment: the experiment of the run.
      others: labels of the nodes to run in another process, in threads; of the remaining nodes, only those made by
        `make_node` run.
    """

    def __init__(self, experiment: Experiment, others: Collection[str]):
        self._opened = contextlib.ExitStack()
        process = ServingProcess()
        path = pathlib.Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="callboard-bench-")))
        self._opened.callback(process.close)
        self.layout = check_experiment(experiment).whole
        directory = RunDirectory(path)
        directory.create()
        program = make_program(Run(experiment, self.layout, directory))
        self._nodes = {node.name: node for _, node in nodes_of(program) if isinstance(node, ProgramNode)}
        self._ports = self._opened.enter_context(reserved_ports(program))
        elsewhere = [(node, self._ports[node.name]) for label, node in nodes_of(program) if label in others]
        process.start(functools.partial(_start_nodes, cloudpickle.dumps(elsewhere)))

    def make_node(self, name: str) -> Node:
        """Return a new incarnation of a node, in this process and not yet set up; its methods are not served."""
        return self._nodes[name].make_node(_context(self._nodes[name], None))

    def port(self, name: str) -> int:
        """Return the port that is reserved for a node."""
        port = self._ports[name]
        assert port is not None
        return port

    def replay(self) -> ReplayHandle:
        """Return a handle of the first replay shard."""
        address = f"localhost:{self._ports['replay/0']}"
        client = self._nodes["replay/0"].create_handle().dereference()
        return ReplayHandle(lambda: [address], windows=lambda shard, timeout: client)

    def wait_for_replay(self) -> None:
        """Wait until the first replay shard responds."""
        client = self.replay().client()
        while True:
            try:
                client.server_info(timeout=1)
                return
            except Exception:  # Reverb raises its own errors and RuntimeError if no server is up.
                continue

    def close(self) -> None:
        self._opened.close()


def _start_nodes(pickled: bytes) -> tuple[Any, None]:
    threads = [
        threading.Thread(target=_run_node, args=(node, port), name=node.name, daemon=True)
        for node, port in cloudpickle.loads(pickled)
    ]
    for thread in threads:
        thread.start()
    return threads, None


def _run_node(node: ProgramNode, port: int | None) -> None:
    try:
        node.run_node(_context(node, port))
    except BaseException:
        # Otherwise the measuring process would wait for this node forever.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _context(node: ProgramNode, port: int | None) -> NodeContext:
    return NodeContext(
        name=node.name,
        incarnation_id=uuid.uuid4().hex,
        stop=threading.Event(),
        send=lambda kind, content: None,
        port=port,
    )
