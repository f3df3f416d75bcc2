"""Calls over a socket file."""

import os
import pickle
import socket
import threading

import pytest

from callboard.launch.processes.local_socket import SocketError, call, served_at


def test_methods_are_called_one_after_the_other_and_nothing_is_left(tmp_path):
    # A run directory may have a longer path than a socket may have.
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    path = directory / "socket"
    with served_at(path, {"add": lambda left, right: left + right}):
        assert [call(path, "add", number, 1) for number in range(3)] == [1, 2, 3]
        with pytest.raises(SocketError):
            call(path, "subtract", 1, 1)
        assert call(path, "add", 5, 5) == 10
    assert not path.exists()
    with pytest.raises(SocketError):
        call(path, "add", 1, 1)


def test_a_socket_that_a_killed_process_has_left_is_replaced(tmp_path):
    path = tmp_path / "socket"
    path.write_text("left")
    with served_at(path, {"answer": lambda: 42}):
        assert call(path, "answer") == 42


def test_a_directory_that_is_missing_does_not_end_the_run(tmp_path):
    with served_at(tmp_path / "missing" / "socket", {}):
        pass


class Executes:
    """What executes a command in a process that unpickles it."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("end", ["server", "client"])
def test_nothing_that_the_other_end_sends_is_unpickled(tmp_path, end):
    content, path = pickle.dumps(Executes(tmp_path / "executed")) + b"\n", tmp_path / "socket"
    if end == "client":
        with served_at(path, {"answer": lambda: 42}):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(content)
                assert client.recv(1) == b""
            assert call(path, "answer") == 42
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()

            def answer():
                client, _ = server.accept()
                with client:
                    client.recv(2**16)
                    client.sendall(content)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(SocketError, match="is not JSON|not complete"):
                call(path, "answer")
            thread.join()
    assert not (tmp_path / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_socket_of_another_user_is_not_used(tmp_path):
    path = tmp_path / "socket"
    tmp_path.chmod(0o755)
    reader, writer = os.pipe()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        child = os.fork()
        if child == 0:
            # The process that calls listen is the owner of that end.
            os.setuid(65534)
            server.listen()
            os.write(writer, b"x")
            server.accept()
            os._exit(0)
        os.read(reader, 1)
        with pytest.raises(SocketError, match="belongs to another user"):
            call(path, "answer")
        os.waitpid(child, 0)
