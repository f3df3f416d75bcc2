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
from launchpad.address import AbstractAddressBuilder

from ....deadlines import Deadline
from ....errors import CallboardError
from ....settings.own_modules import search_working_directory
from ...experiments.checked_run import Run
from ...nodes.node import LaunchedNode, NodeContext
from ...nodes.progress import HEARTBEAT, HeartbeatSender, Progress
from ...processes.listen_filter import PortGuard
from ...processes.ports import RAY_PORTS, ReservedPort, reserve_among
from ...run_directory.layout import RunDirectory
from ...run_directory.node_mirror import Mirror
from ...run_directory.remote_storage import Storage
from ..node_processes.prepared_process import exit_by, prepare_process
from ..supervision.supervisor import Exit

_ADDRESS_SECONDS = 300.0
_STOP_POLL_SECONDS = 0.2
# Every heartbeat is a Ray object.
_HEARTBEAT_SECONDS = 2.0


class NodeStopped(Exception):
    """Raised if a node is stopped while it waits for an address."""


class AddressBook:
    """The addresses of all nodes known to this process.

    The driver maintains the book, and sends it to every node whenever it changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.known: dict[str, list[str]] = {}
        """The `host:port` of every address of a node, by the node's name."""
        self.stop = threading.Event()
        self._changed = threading.Condition()

    def enter(self, name: str, addresses: Sequence[str]) -> None:
        """Records the addresses of a node."""
        with self._changed:
            self.version += 1
            self.known = {**self.known, name: list(addresses)}

    def update(self, version: int, known: Mapping[str, list[str]]) -> None:
        """Adopts a newer version of the book."""
        with self._changed:
            if version > self.version:
                self.version, self.known = version, dict(known)
                self._changed.notify_all()

    def find(self, name: str, index: int) -> str:
        """Returns an address of a node; waits if it is not known yet.

        Raises:
          NodeStopped: `stop` was set in the meantime.
          TimeoutError: the node has not reported it within five minutes.
        """
        deadline = Deadline(_ADDRESS_SECONDS)
        with self._changed:
            while len(self.known.get(name, ())) <= index:
                if self.stop.is_set():
                    raise NodeStopped
                if deadline.has_passed:
                    raise TimeoutError(f"{name} has not reported its address within {_ADDRESS_SECONDS:.0f} s")
                self._changed.wait(_STOP_POLL_SECONDS)
            return self.known[name][index]

    def __getstate__(self) -> dict[str, Any]:
        return {"version": self.version, "known": self.known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.update(**state)


class BookedAddress(AbstractAddressBuilder):
    """A Launchpad address that is looked up each time it is resolved."""

    def __init__(self, book: AddressBook, name: str, index: int):
        self._book = book
        self._name = name
        self._index = index

    def build(self) -> str:
        return self._book.find(self._name, self._index)


class Incarnation(NamedTuple):
    """Arguments with which an incarnation of a node is started."""

    node: LaunchedNode
    incarnation_id: str
    run: Run
    book: AddressBook
    scratch: str
    """Name of the directory, among a machine's temporary files, for nodes of a run that is stored at a URL."""


@ray.remote(concurrency_groups={"control": 4})
class RayNode:
    """The Ray actor of a node.

    Ray restarts its process when it dies, and the driver then calls `run` again.  Each process runs one incarnation,
    because TensorFlow keeps too much state to run another one.

    Args:
      search_path: the driver's module search path.
      searched: directories in which the driver finds modules of the user.
    """

    def __init__(self, search_path: Sequence[str], searched: Sequence[str] = ()):
        # If Ray was started from the same terminal, Ctrl-C reaches this process too; the driver handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path.extend(path for path in search_path if path not in sys.path and os.path.isdir(path))
        for directory in searched:
            search_working_directory(directory)
        self._lock = threading.Lock()
        self._book: AddressBook | None = None
        self._newest_book: tuple[int, dict[str, list[str]]] = (0, {})
        self._stop = threading.Event()
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._ports: list[ReservedPort] = []
        self._incarnation_id = ""
        self._guard = PortGuard()
        self._hosts: tuple[str, ...] | None = None
        self._progress = Progress()

    @ray.method(concurrency_group="control")
    def past_incarnation(self) -> str:
        """Returns the id of the incarnation that this process has run; empty if it has run none."""
        return self._incarnation_id

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """Stops the node."""
        self._stop.set()

    @ray.method(concurrency_group="control")
    def update_addresses(self, version: int, known: dict[str, list[str]]) -> None:
        """Receives the driver's address book."""
        with self._lock:
            self._newest_book = max(self._newest_book, (version, known), key=lambda book: book[0])
            if self._book is not None:
                self._book.update(*self._newest_book)
            self._open_to_run()

    @ray.method(num_returns="streaming")
    def run(self, incarnation_id: str, pickled: bytes) -> Iterator[tuple[str, Any]]:
        """Runs the node; yields its messages as `(kind, content)`, and finally `("exit", Exit)`."""
        self._incarnation_id = incarnation_id
        HeartbeatSender(self._progress, self._send, _HEARTBEAT_SECONDS)
        threading.Thread(target=self._run_incarnation, args=(pickled,), name="node", daemon=True).start()
        while True:
            message = self._messages.get()
            yield message
            if message[0] == "exit":
                return

    def _run_incarnation(self, pickled: bytes) -> None:
        try:
            incarnation: Incarnation = cloudpickle.loads(pickled)
            with self._lock:
                self._book = incarnation.book
                incarnation.book.stop = self._stop
                incarnation.book.update(*self._newest_book)
                self._hosts = incarnation.node.rules.hosts
                rules = incarnation.node.rules
                incarnation.node.rules = dataclasses.replace(rules, hosts=self._open_to_run())
            how = self._run_with_copy(incarnation) if incarnation.run.directory.url else self._run_shared(incarnation)
        except BaseException as error:
            how = exit_by(error)
        self._messages.put((HEARTBEAT, self._progress.heartbeat()))
        self._messages.put(("exit", how))

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
        return self._run(incarnation, directory, temporary)

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
        keep = incarnation.run.experiment.keep_checkpoints
        mirror = Mirror(Storage(url), name, directory, lambda text: self._send("message", text), keep)
        mirror.fetch()
        mirror.start()
        incarnation.node.move_to(directory)
        how = self._run(incarnation, directory, directory.temporary)
        if mirror.close():
            shutil.rmtree(path, ignore_errors=True)
            return how
        # This is the only copy.  Move it away from later incarnations, and from the launcher, which removes the run's
        # files.
        kept = path.parent.with_name(f"callboard-kept-{path.name}-{incarnation.incarnation_id[:8]}")
        path.rename(kept)
        error = f"what {name} wrote last could not be stored at {url}: it is in {kept} on {socket.gethostname()}"
        self._send("message", error)
        return Exit(clean=False, description="could not store what it wrote last", error=error) if how.clean else how

    def _run(self, incarnation: Incarnation, directory: RunDirectory, temporary: pathlib.Path) -> Exit:
        node = incarnation.node
        # Those that are reserved for it, of which Ray has made only these visible in this process.
        has_gpu = bool(ray.get_runtime_context().get_accelerator_ids().get("GPU"))
        rules = dataclasses.replace(node.rules, uses_gpu=has_gpu)
        prepare_process(node.name, rules, str(directory.log(node.name)), str(temporary))
        where = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        logging.info("on Ray node %s, %s; GPUs %s", *where, os.environ["CUDA_VISIBLE_DEVICES"] if has_gpu else "none")
        try:
            self._ports = [reserve_among(RAY_PORTS) for _ in node.addresses]
            own = [f"{ray.util.get_node_ip_address()}:{reserved.port}" for reserved in self._ports]
            self._messages.put(("addresses", own))
            context = NodeContext(
                name=node.name,
                incarnation_id=incarnation.incarnation_id,
                stop=self._stop,
                send=self._send,
                port=self._ports[0].port if self._ports else None,
                progress=self._progress,
                guard=self._guard,
            )
            node.run_node(context)
        except NodeStopped:
            pass
        except BaseException as error:
            return exit_by(error)
        return Exit(clean=True, description="ended")

    def _open_to_run(self) -> tuple[str, ...] | None:
        """Accepts packets from the machines on which the run has nodes, and returns their addresses."""
        if self._hosts is None or self._book is None:
            return None
        machines = {address.rpartition(":")[0] for addresses in self._book.known.values() for address in addresses}
        hosts = (*self._hosts, *sorted(machines))
        self._guard.allow(hosts)
        return hosts

    def _send(self, kind: str, content: Any) -> None:
        self._messages.put((kind, content))
