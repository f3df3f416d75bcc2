"""A TCP link of limited rate, in this process."""

import contextlib
import socket
import threading
import time

_CHUNK = 4096


class LimitedLink:
    """Forwards connections to a port; all answers together get `rate` bytes per second.

    Args:
      port: the port to forward to.
      rate: bytes per second.
    """

    def __init__(self, port, rate):
        self._target, self.rate, self.sent = port, rate, 0
        self._free = time.monotonic()
        self._lock = threading.Lock()
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._sockets[0].getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.cut()
        self._sockets[0].close()

    def cut(self):
        """Ends all connections."""
        for each in self._sockets[1:]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                server = socket.socket()
                # Little may wait in the kernel, or the rate would not be seen.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHUNK)
                server.connect(("127.0.0.1", self._target))
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source, sink, limited):
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if limited:
                    with self._lock:
                        self._free = max(self._free, time.monotonic()) + len(data) / self.rate
                        self.sent += len(data)
                    time.sleep(max(0.0, self._free - time.monotonic()))
                sink.sendall(data)
        for each in (source, sink):
            each.close()
