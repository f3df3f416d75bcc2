"""What tests of several folders share."""

import gc
import os
import signal

import pytest
from two_devices import TwoDevices

from callboard.settings.own_modules import search_working_directory

pytest_plugins = ["tiers"]

# Ray would give its processes what others leave of a busy machine.
os.environ.setdefault("RAY_worker_niceness", "0")


# Functions that tests name in settings are the user's, here and in the processes of a run.
search_working_directory(os.path.dirname(os.path.abspath(__file__)))

# Runs that tests start have sessions of their own, and would survive a test process that `timeout` ends.
signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, files that share what takes long to make are in one process."""
    if config.getoption("dist") == "loadfile":
        from files_together import FilesTogether

        return FilesTogether(config, log)
    return None


def pytest_collection_finish():
    """Lets garbage collection come seldom, and pass over what lives to the end: libraries, and the tests themselves."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def on_two_devices():
    """Calls a function by its file, its name and arguments where TensorFlow has CPU:0 and CPU:1.

    That is one process for all tests, since to import TensorFlow takes longer than most of them.
    """
    process = TwoDevices()
    yield process
    process.close()


class Clock:
    """A clock that moves only when the test moves it, or sleeps.

    Attributes:
      now: seconds.
    """

    now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()
