"""A run that another process or machine runs: its nodes, and their stacks."""

import pathlib
import re
import shlex
import tempfile
import time
import uuid
from typing import Any

import psutil

from ...errors import CallboardError, named_as, suggestion
from ...runtime.deadlines import Deadline
from ..nodes.proxy_bypass import bypass_proxies
from ..plain_names import in_command
from ..processes.local_socket import SocketError, call
from ..run_directory.coordinator_address import read_address
from ..run_directory.found_runs import no_run
from ..run_directory.layout import RunDirectory
from ..run_directory.remote_storage import Storage, is_url

_CALL_SECONDS = 5.0
_STACK_SECONDS = 20.0
_POLL_SECONDS = 0.2


class NotAnswering(CallboardError):
    """The coordinator of the run does not answer."""


class AttachedRun:
    """The coordinator of a run: over a socket file in the run directory, or at an address that the user has named.

    Args:
      run: the run directory, a path or a URL, or `host:port` of the coordinator.

    Raises:
      CallboardError: there is no such run, or it is not running.
    """

    def __init__(self, run: str):
        self.run = run
        self._socket: pathlib.Path | None = None
        self._client: Any = None
        self._process: int | None = None
        self._where = run
        self._otherwise = ""
        if not is_url(run) and not pathlib.Path(run).exists() and re.fullmatch(r"[!-~]+:[0-9]{1,5}", run):
            self._connect(run)
        elif is_url(run):
            with tempfile.TemporaryDirectory(prefix="callboard-") as local, named_as(local, run):
                directory = RunDirectory(pathlib.Path(local), url=run)
                Storage(run).fetch(directory.coordinator.name, directory.path)
                self._attach(directory)
        else:
            directory = RunDirectory(pathlib.Path(run))
            if not directory.experiment.exists():
                raise no_run(run)
            self._attach(directory)

    def overview(self) -> dict[str, Any]:
        """Returns the status of the run, and under `table` a row for every node, see `NodeOverview.table`.

        Raises:
          NotAnswering: the run has ended, or cannot be reached.
        """
        overview = self._call("overview")
        if self._process not in (None, overview["coordinator"][1]):
            # The run was killed, and another one has its port.
            raise NotAnswering(f"the run in {self.run} is not running")
        return overview

    def stacks(self, node: str) -> str:
        """Returns the Python stacks of all threads of a node's process, also where its main loop hangs.

        Args:
          node: name of the node, such as `actor/0`.

        Raises:
          CallboardError: there is no such node, it has not reported yet, or it does not answer.
        """
        overview = self.overview()
        processes = {row["node"]: (row.get("host"), row.get("process")) for row in overview["table"]}
        if node not in processes:
            raise CallboardError(f"no node {node!r} has reported yet; {suggestion(node, processes)}")
        in_its_process = processes[node] == tuple(overview["coordinator"]) or node.startswith("coordinator/")
        if in_its_process:
            return str(self._call("stacks", node))
        command = uuid.uuid4().hex
        self._call("request_stacks", command, node)
        deadline = Deadline(_STACK_SECONDS)
        while not deadline.has_passed:
            reply = self._call("replied_stacks", command)
            if reply is not None:
                error, stacks = reply
                if error:
                    raise CallboardError(f"{node} could not return its stacks: {error}")
                return str(stacks)
            time.sleep(_POLL_SECONDS)
        host, process = processes[node]
        hint = f"; on {host}, try py-spy dump --native --pid {process}" if process else ""
        raise CallboardError(
            f"{node} has not answered within {_STACK_SECONDS:.0f} s: it is starting, was just killed, or hangs in "
            f"native code{hint}"
        )

    def _attach(self, directory: RunDirectory) -> None:
        address = read_address(directory.coordinator)
        if address is None:
            again = f"callboard train --resume --run-dir {shlex.quote(in_command(self.run))}"
            raise NotAnswering(f"the run in {self.run} is not running; continue it with {again}")
        self._process = address.process
        if address.is_here and not directory.url:
            self._socket = directory.socket
            if address.port is not None and psutil.pid_exists(address.process) and not self._socket.exists():
                # Some file systems have no sockets.
                self._otherwise = f", or its directory cannot hold a socket; try callboard top {address.for_client()}"
            return
        # The file may be somebody else's, and what answers at an address can execute code here.
        otherwise = "" if address.port is None else f", or name its address: callboard top {address.for_client()}"
        raise CallboardError(
            f"the run in {self.run} is reached only on the machine of its coordinator, {address.host}; run callboard "
            f"top there{otherwise}"
        )

    def _connect(self, address: str) -> None:
        import courier

        self._where = address
        bypass_proxies(address.rpartition(":")[0])
        self._client = courier.Client(address, call_timeout=_CALL_SECONDS)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            if self._socket is not None:
                return call(self._socket, method, *arguments)
            from courier.python.client import StatusNotOk

            try:
                return getattr(self._client, method)(*arguments)
            except StatusNotOk as error:
                raise NotAnswering(
                    f"the run in {self.run} is not running, or its coordinator at {self._where} cannot be reached "
                    "from here"
                ) from error
        except SocketError as error:
            raise NotAnswering(f"the run in {self.run} is not running{self._otherwise}") from error
