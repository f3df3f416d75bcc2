"""One fetch of a learner's weights for all nodes of a machine that act, which share them in memory.

The first of these nodes that finds no *relay* at a Unix socket of the run becomes it: threads of its process fetch each
version from the learner and hand it to the others, as a descriptor of memory that no process can write to.  The socket
has a name but no file, and the memory neither, so a relay that is killed leaves nothing behind; the next node that asks
becomes the relay.  While a relay does not answer in time, nodes fetch from the learner themselves.
"""

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....agents.variables.weights import Snapshot, WeightFetcher
from ....data import Version
from ....runtime.deadlines import Deadline
from ...processes.local_socket import SocketError, check_owner
from ..node import NodeContext, NodeHandle
from .weight_fetching import CALL_SECONDS, FETCH_SECONDS, fetch_pause, fetch_weights
from .weight_store import WeightStore

_REQUEST = struct.Struct("=2q")
"""Incarnation and learner step of the weights that a node has."""
_ANSWER = struct.Struct("=3q")
"""Those of the weights whose descriptor comes with the answer, and their size."""
_NOTHING = (-1, -1)
_HOLD_SECONDS = 0.5
"""Time for which the relay keeps a request whose node has the newest weights."""
_FRESH_SECONDS = 0.25
"""Time since the learner's last answer within which weights are handed out without another request to it."""
_PATIENCE_SECONDS = 2 * _HOLD_SECONDS + 1.0
"""Time that a node waits for the relay."""
_DIRECT_SECONDS = 10.0
"""Time for which a node then fetches from the learner."""
_POLL_SECONDS = 0.2
_CONNECT_ATTEMPTS = 10
"""Attempts to reach or become the relay: the address of a relay that has ended is free a moment later."""
_CONNECT_PAUSE = 0.01
"""Seconds between the first attempts, and each time that many more."""


class RelayedLearner:
    """Handle of a learner, whose clients fetch weights through the machine's relay where they can.

    Only one client at a time may be used.  Where nodes take turns, and in runs without an id, there is no relay.

    Args:
      learner: handle of the learner.
      start: id of this start of the run, see `Run.start`; it may be empty.
      nodes: number of nodes that fetch from this learner, on all machines.
      context: context of the node.
    """

    def __init__(self, learner: NodeHandle, start: str, nodes: int, context: NodeContext):
        self.name = learner.name
        self._learner = learner
        self._nodes = nodes
        self._context = context
        digest = hashlib.sha256(f"{start} {learner.name}".encode()).hexdigest()
        self._address = f"\0callboard-weights-{digest[:32]}"
        self._connection: socket.socket | None = None
        self._has_relay = bool(start) and not context.cooperative
        self._direct = Deadline(0.0)

    @property
    def pause(self) -> float:
        """Seconds to wait between an answer and the next request."""
        return fetch_pause(self._nodes) if self._connection is None else FETCH_SECONDS

    def client(self, timeout: float) -> Any:
        """Returns a source of weights whose calls raise `Unreachable` if the learner is asked and does not answer."""
        learner = self._learner.client(timeout)
        return _Source(self, learner) if self._has_relay else learner

    def from_relay(self, have: Sequence[int] | None) -> Snapshot | None:
        """Returns weights other than version `have`, or None if the relay has none now.

        Raises:
          OSError: no relay answers.
        """
        if not self._direct.has_passed:
            raise TimeoutError
        try:
            try:
                return self._ask(have)
            except ConnectionError:
                # It has ended; from now on, there is another one.
                self._disconnect()
                return self._ask(have)
        except OSError as error:
            self._disconnect()
            if not isinstance(error, ConnectionError):
                self._direct.restart(_DIRECT_SECONDS)
                logging.warning("no relay of weights here (%s): asks %s itself", error, self.name)
            raise

    def _ask(self, have: Sequence[int] | None) -> Snapshot | None:
        connection = self._connection = self._connection or self._connect()
        connection.send(_REQUEST.pack(*(_NOTHING if have is None else have)))
        answer, descriptors, *_ = socket.recv_fds(connection, _ANSWER.size, 1)
        if not answer:
            raise ConnectionResetError("the relay has ended")
        incarnation, step, size = _ANSWER.unpack(answer)
        if not descriptors:
            return None
        return (incarnation, step), _shared(descriptors[0], size)

    def _connect(self) -> socket.socket:
        for attempt in range(_CONNECT_ATTEMPTS):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                connection.settimeout(_PATIENCE_SECONDS)
                connection.connect(self._address)
                check_owner(connection)
                return connection
            except ConnectionRefusedError:
                connection.close()
                if self._context.stop.wait(_CONNECT_PAUSE * attempt) or attempt == _CONNECT_ATTEMPTS - 1:
                    raise
                self._become_relay()
            except SocketError as error:
                connection.close()
                raise OSError(str(error)) from error
        raise AssertionError

    def _become_relay(self) -> None:
        """Starts a relay in this process, unless another process has just started one."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(self._address)
            listener.listen(1024)
        except OSError:
            listener.close()
            return
        logging.info("fetches the weights of %s for this machine", self.name)
        WeightRelay(listener, self._learner, self._nodes, self._context)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Source:
    """A `WeightSource`: the relay, or the learner."""

    def __init__(self, relayed: RelayedLearner, learner: Any):
        self._relayed = relayed
        self._learner = learner

    def get_variables(self, have: tuple[int, int] | None, most: int) -> Any:
        try:
            return self._relayed.from_relay(have)
        except OSError:
            return self._learner.get_variables(have, most)

    def get_part(self, version: tuple[int, int], offset: int, size: int) -> np.ndarray | None:
        return self._learner.get_part(version, offset, size)


class WeightRelay(WeightFetcher):
    """Fetches a learner's weights while nodes of this machine ask for them, and hands them out.

    It ends with the node in whose process it is.

    Args:
      listener: the socket to which the nodes connect.
      learner: handle of the learner.
      nodes: number of nodes that fetch from this learner, on all machines.
      context: context of the node.
    """

    def __init__(self, listener: socket.socket, learner: NodeHandle, nodes: int, context: NodeContext):
        super().__init__(learner.client(CALL_SECONDS))
        self._listener = listener
        self._learner = learner
        self._nodes = nodes
        self._context = context
        self._store = WeightStore()
        self._wanted = threading.Event()
        self._answered = threading.Condition()
        self._fresh = Deadline(0.0)
        self._ended = threading.Event()
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="relay of weights", daemon=True).start()
        threading.Thread(target=self._fetch_while_wanted, name="fetches of the relay", daemon=True).start()

    def receive(self, version: tuple[int, int], packed: np.ndarray) -> None:
        self._store.put(Version(*version), _Memory(packed))

    def _fetch_while_wanted(self) -> None:
        stop = self._context.stop
        try:
            while not stop.is_set():
                if not (self._store.is_waited_for or self._wanted.wait(_POLL_SECONDS)):
                    continue
                self._wanted.clear()
                if fetch_weights(self, self._learner, self._context):
                    with self._answered:
                        self._fresh.restart(_FRESH_SECONDS)
                        self._answered.notify_all()
                # It asks in place of all nodes of this machine.
                stop.wait(fetch_pause(self._nodes / max(1, len(self._connections))))
        finally:
            self._ended.set()
            for each in (self._listener, *self._connections):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # It has been closed.
            self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="relayed weights", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, SocketError, struct.error):
                check_owner(connection)
                while not self._ended.is_set() and (request := connection.recv(_REQUEST.size + 1)):
                    have = _REQUEST.unpack(request)
                    snapshot = self._other_than(None if have == _NOTHING else have)
                    if snapshot is None:
                        connection.send(_ANSWER.pack(*_NOTHING, 0))
                    else:
                        (incarnation, step), memory = snapshot
                        answer = _ANSWER.pack(incarnation, step, memory.size)
                        socket.send_fds(connection, [answer], [memory.file.fileno()])
        finally:
            self._connections.discard(connection)

    def _other_than(self, have: Sequence[int] | None) -> Any:
        """Returns weights and their version, which is another than `have`; None if none come in time.

        An earlier version is handed out only if the learner has no later one: it restores a checkpoint, perhaps.
        """
        self._wanted.set()
        with self._answered:
            # No node may have asked for a while, and a node may have later weights, from an earlier relay.
            self._answered.wait_for(lambda: not (self._fresh.has_passed or self._is_behind(have)), _HOLD_SECONDS)
        return self._store.get_variables(have, patience=_HOLD_SECONDS)

    def _is_behind(self, have: Sequence[int] | None) -> bool:
        version = self._store.version()
        return version is not None and have is not None and version < tuple(have)


class _Memory:
    """Bytes in memory that processes share and none can change; freed when the last of them has closed it."""

    def __init__(self, array: np.ndarray):
        self.size = len(array)
        self.file = os.fdopen(os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b", buffering=0)
        left = np.ascontiguousarray(array).data.cast("B") if self.size else memoryview(b"")
        while left:
            left = left[self.file.write(left) :]
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


def _shared(descriptor: int, size: int) -> np.ndarray:
    """Returns the bytes of a descriptor of memory, read-only, and closes it."""
    try:
        if not size:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)
