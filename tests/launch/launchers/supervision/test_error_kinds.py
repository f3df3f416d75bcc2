"""Which errors are faults, and where an error was raised."""

import pytest
import tensorflow as tf

from callboard.launch.launchers.node_processes.prepared_process import error_place, is_fault


class RpcError(Exception):
    pass


@pytest.mark.parametrize(
    "error, expected",
    [
        (ConnectionResetError(), True),
        (OSError("no camera"), True),
        (MemoryError(), True),
        (EOFError(), True),
        (RpcError(), True),
        (tf.errors.UnavailableError(None, None, ""), True),
        (tf.errors.InvalidArgumentError(None, None, ""), False),
        (AttributeError(), False),
        (FileNotFoundError(), False),
        (SystemExit(3), False),
    ],
)
def test_faults_are_those_of_connections_and_resources(error, expected):
    assert is_fault(error) is expected
    with pytest.raises(RuntimeError) as caught:
        try:
            raise error
        except BaseException as cause:
            raise RuntimeError from cause
    assert is_fault(caught.value) is expected


def test_a_place_is_that_of_a_line():
    def place(index):
        try:
            return [][index]
        except IndexError as error:
            return error_place(error)

    assert place(1) == place(2) and place(1).startswith("IndexError ") and "test_error_kinds.py:" in place(1)
