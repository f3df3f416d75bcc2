"""Calls over a socket file."""

import pytest

from callboard.launch.local_socket import SocketError, call, served_at


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
