"""Calls between processes of one user on one machine, over a socket file in a directory that only the user can read.

A request and its answer are one line of JSON each, so neither side executes what the other sends, and both check that
the other process belongs to the same user.  Nothing listens on the network.
"""

import contextlib
import json
import os
import pathlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...files.guarded_files import parse_json

_CALL_SECONDS = 10.0
_MOST_BYTES = 2**24
_PEER = struct.Struct("3i")  # struct ucred, see unix(7).


class SocketError(Exception):
    """Nothing answers at a socket, or not as it should."""


@contextlib.contextmanager
def served_at(path: pathlib.Path, methods: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Serves methods at a socket file within the context, one call at a time, in a background thread.

    If the file cannot be made, nothing is served.

    Args:
      path: path of the file; its directory must exist.
      methods: the methods by name; what they return must be plain data.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _short(path) as short:
            listener.bind(short)
        listener.listen()
    except OSError:
        listener.close()
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_serve, args=(listener, methods, over), name="local-socket", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            # Wakes the thread.
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(_CALL_SECONDS)
        listener.close()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def call(path: pathlib.Path, method: str, *arguments: Any) -> Any:
    """Calls a method at a socket file and returns its result, as JSON gives it back.

    Raises:
      SocketError: nothing answers there, a process of another user does, or the method has failed.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_CALL_SECONDS)
            with _short(path) as short:
                client.connect(short)
            check_owner(client)
            _send(client, {"method": method, "arguments": arguments})
            answer = _receive(client)
    except OSError as error:
        raise SocketError(str(error)) from error
    if not isinstance(answer, dict) or "result" not in answer:
        raise SocketError(f"{method} was not answered")
    return answer["result"]


def _serve(listener: socket.socket, methods: Mapping[str, Callable[..., Any]], over: threading.Event) -> None:
    while not over.is_set():
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, contextlib.suppress(OSError, SocketError, LookupError, TypeError, ValueError):
            client.settimeout(_CALL_SECONDS)
            check_owner(client)
            request = _receive(client)
            _send(client, {"result": methods[request["method"]](*request["arguments"])})


def _send(end: socket.socket, content: Any) -> None:
    end.sendall(json.dumps(content).encode() + b"\n")


def _receive(end: socket.socket) -> Any:
    with end.makefile("rb") as file:
        line = file.readline(_MOST_BYTES)
    if not line.endswith(b"\n"):
        raise SocketError("the line is not complete")
    try:
        return parse_json(line)
    except ValueError as error:
        raise SocketError("the line is not JSON") from error


def check_owner(end: socket.socket) -> None:
    """Raises `SocketError` unless the process at the other end belongs to this user or to root."""
    _, user, _ = _PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user not in (os.geteuid(), 0):
        raise SocketError("the process at the other end belongs to another user")


@contextlib.contextmanager
def _short(path: pathlib.Path) -> Iterator[str]:
    """Yields another path of the same file, short enough for a socket, which must have less than 108 characters."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
