"""A node as a Ray actor: one process for each of its incarnations."""

import dataclasses
import logging
import os
import pathlib
import queue
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
import ray

from ....errors import CallboardError
from ....settings.own_files import different_file
from ....settings.own_modules import search_working_directory
from ...experiments.checked_run import Run
from ...nodes.node import LaunchedNode
from ...nodes.progress import HEARTBEAT, HeartbeatSender
from ...processes.ports import RAY_PORTS, reserve_among
from ...run_directory.layout import RunDirectory
from ...run_directory.node_mirror import Mirror
from ...run_directory.remote_storage import Storage
from ..node_processes.prepared_process import exit_by, prepare_process
from ..supervision.supervisor import Exit
from .address_book import Entries, NodeStopped, own_book
from .node_actors import NodeHost

# Every heartbeat is a Ray object.
_HEARTBEAT_SECONDS = 2.0


class Incarnation(NamedTuple):
    """Arguments with which an incarnation of a node is started."""

    node: LaunchedNode
    run: Run
    scratch: str
    """Name of the directory, among a machine's temporary files, for nodes of a run that is stored at a URL."""


@ray.remote(concurrency_groups={"control": 4})
class RayNode(NodeHost):
    """The Ray actor of a node, which a supervisor follows.

    Ray restarts its process when it dies, and the driver then calls `run` again.  Each process runs one incarnation,
    because TensorFlow keeps too much state to run another one.

    Args:
      name: name of the node.
      search_path: the driver's module search path.
      searched: directories in which the driver finds modules of the user.
    """

    def __init__(self, name: str, search_path: Sequence[str], searched: Sequence[str] = ()):
        # If Ray was started from the same terminal, Ctrl-C reaches this process too; the driver handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path.extend(path for path in search_path if path not in sys.path and os.path.isdir(path))
        for directory in searched:
            search_working_directory(directory)
        super().__init__(name, hosts=())
        self._lock = threading.Lock()
        self._book = own_book()
        self._book.stop = self.context.stop
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._hosts: tuple[str, ...] | None = None

    @ray.method(concurrency_group="control")
    def past_incarnation(self) -> str:
        """Returns the id of the incarnation that this process has run; empty if it has run none."""
        return self.context.incarnation_id if self._thread.ident else ""

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """Stops the node."""
        self.context.stop.set()

    @ray.method(concurrency_group="control")
    def update_addresses(self, entries: Entries) -> None:
        """Receives entries of the driver's address book."""
        self._book.update(entries)
        self._open_to_run()

    @ray.method(num_returns="streaming")
    def run(self, pickled: bytes, code: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        """Runs the node; yields its messages as `(kind, content)`, and finally `("exit", Exit)`.

        Args:
          pickled: an `Incarnation`.
          code: digests of the files of the user's modules, which must be the same here.
        """
        HeartbeatSender(self.context.progress, self._send, _HEARTBEAT_SECONDS)
        self._arguments = pickled, code
        self._thread.start()
        while True:
            message = self._messages.get()
            yield message
            if message[0] == "exit":
                return

    def _run(self) -> None:
        pickled, code = self._arguments
        try:
            if different := different_file(code):
                raise CallboardError(
                    f"the file {different} is missing on {socket.gethostname()}, or differs from that where the run "
                    "was started: copy your modules to every machine, or start with `ray job submit --working-dir .`"
                )
            incarnation: Incarnation = cloudpickle.loads(pickled)
            self._hosts, self.node = incarnation.node.rules.hosts, incarnation.node
            self._open_to_run()
            how = self._run_with_copy(incarnation) if incarnation.run.directory.url else self._run_shared(incarnation)
        except BaseException as error:
            how = exit_by(error)
        self._send(HEARTBEAT, self.context.progress.heartbeat())
        self._send("exit", how)

    def _run_shared(self, incarnation: Incarnation) -> Exit:
        """Runs in a directory that is shared by all machines."""
        directory = incarnation.run.directory
        if not directory.experiment.exists():
            raise CallboardError(
                f"the run directory {directory.path} is not there on {socket.gethostname()}: take one on storage that "
                "all machines of the cluster share, or a URL such as s3://bucket/run"
            )
        temporary = directory.temporary / incarnation.node.name.replace("/", "-")
        directory.make(temporary)
        return self._run_in(incarnation, directory, temporary)

    def _run_with_copy(self, incarnation: Incarnation) -> Exit:
        """Runs in a directory of this machine, and uploads what the node writes there."""
        name, url = incarnation.node.name, incarnation.run.directory.url
        path = pathlib.Path(tempfile.gettempdir()) / incarnation.scratch / name.replace("/", "-")
        # An earlier incarnation may have been killed here.
        shutil.rmtree(path, ignore_errors=True)
        directory = RunDirectory(path, url=url)
        directory.create()
        for policy in incarnation.run.policies:
            directory.of_policy(policy).create()
        keep = incarnation.run.checkpoints.keep_checkpoints
        mirror = Mirror(Storage(url), name, directory, lambda text: self._send("message", text), keep)
        mirror.fetch()
        mirror.start()
        incarnation.node.move_to(directory)
        how = self._run_in(incarnation, directory, directory.temporary)
        if mirror.close():
            shutil.rmtree(path, ignore_errors=True)
            return how
        # This is the only copy.  Move it away from later incarnations, and from the launcher, which removes the run's
        # files.
        kept = path.parent.with_name(f"callboard-kept-{path.name}-{self.context.incarnation_id[:8]}")
        path.rename(kept)
        error = f"what {name} wrote last could not be stored at {url}: it is in {kept} on {socket.gethostname()}"
        self._send("message", error)
        return Exit(clean=False, description="could not store what it wrote last", error=error) if how.clean else how

    def _run_in(self, incarnation: Incarnation, directory: RunDirectory, temporary: pathlib.Path) -> Exit:
        node = incarnation.node
        # Those that are reserved for it, of which Ray has made only these visible in this process.
        has_gpu = bool(ray.get_runtime_context().get_accelerator_ids().get("GPU"))
        rules = dataclasses.replace(node.rules, uses_gpu=has_gpu)
        prepare_process(node.name, rules, str(directory.log(node.name)), str(temporary))
        where = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        logging.info("on Ray node %s, %s; GPUs %s", *where, os.environ["CUDA_VISIBLE_DEVICES"] if has_gpu else "none")
        try:
            self._ports += [reserve_among(RAY_PORTS) for _ in node.addresses[1:]]
            self._send("machine", ray.get_runtime_context().get_node_id())
            self._send("addresses", [self.address(index) for index in range(len(self._ports))])
            node.run_node(self.context)
        except NodeStopped:
            pass
        except BaseException as error:
            return exit_by(error)
        return Exit(clean=True, description="ended")

    def _open_to_run(self) -> None:
        """Accepts packets from the machines of nodes in the node's book."""
        with self._lock:
            if self.node is not None and self._hosts is not None:
                hosts = (*self._hosts, *self._book.machines())
                # The node allows them when it begins.
                self.node.rules = dataclasses.replace(self.node.rules, hosts=hosts)
                self.context.guard.allow(hosts)

    def _send(self, kind: str, content: Any) -> None:
        self._messages.put((kind, content))
