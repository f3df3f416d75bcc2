"""Calls between processes of one user on one machine, over a socket file in a directory that only the user can read.

It serves runs whose nodes share a thread and have no port: nothing listens on the network.
"""

import contextlib
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import connection
from typing import Any

_CALL_SECONDS = 10.0


class SocketError(Exception):
    """Nothing answers at a socket."""


@contextlib.contextmanager
def served_at(path: pathlib.Path, methods: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Serves methods at a socket file within the context, one call at a time, in a background thread.

    If the file cannot be made, nothing is served.

    Args:
      path: path of the file; its directory must exist.
      methods: the methods by name.
    """
    try:
        path.unlink(missing_ok=True)
        with _short(path) as short:
            listener = connection.Listener(short, "AF_UNIX")
    except OSError:
        yield
        return
    thread = threading.Thread(target=_serve, args=(listener, methods), name="local-socket", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, EOFError), _short(path) as short, connection.Client(short, "AF_UNIX") as end:
            end.send(None)
        thread.join(_CALL_SECONDS)
        with contextlib.suppress(OSError):
            listener.close()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def call(path: pathlib.Path, method: str, *arguments: Any) -> Any:
    """Calls a method at a socket file and returns its result.

    Raises:
      SocketError: nothing answers there.
    """
    try:
        with _short(path) as short, connection.Client(short, "AF_UNIX") as client:
            client.send((method, arguments))
            if client.poll(_CALL_SECONDS):
                return client.recv()
    except (OSError, EOFError) as error:
        raise SocketError(str(error)) from error
    raise SocketError(f"no answer within {_CALL_SECONDS:.0f} s")


def _serve(listener: connection.Listener, methods: Mapping[str, Callable[..., Any]]) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError, KeyError), listener.accept() as client:
            request = client.recv()
            if request is None:
                return
            method, arguments = request
            client.send(methods[method](*arguments))


@contextlib.contextmanager
def _short(path: pathlib.Path) -> Iterator[str]:
    """Yields another path of the same file, short enough for a socket, which must have less than 108 characters."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no socket files")
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
