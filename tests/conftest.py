"""What tests of several folders share."""

import pytest
from two_devices import TwoDevices


@pytest.fixture(scope="session")
def on_two_devices():
    """Calls a function by its file, its name and arguments where TensorFlow has CPU:0 and CPU:1.

    That is one process for all tests, since to import TensorFlow takes longer than most of them.
    """
    process = TwoDevices()
    yield process
    process.close()
