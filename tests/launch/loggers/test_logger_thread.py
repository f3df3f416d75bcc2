"""Loggers in their threads: whatever a service does, the run continues."""

import threading

import pytest

from callboard.launch.loggers import logger_thread
from callboard.launch.loggers.logger_thread import LoggerThread
from callboard.launch.loggers.metric_logger import LoggedRun, MetricLogger


class Noting(MetricLogger):
    """Notes what it gets, and fails where the test wants it to."""

    def __init__(self, fails=()):
        self.rows, self.closed, self.run = [], False, None
        self._fails = fails

    def start(self, run):
        self.run = run
        self._fail("start")

    def write(self, row):
        self.rows.append(row)
        self._fail("write")

    def close(self):
        self.closed = True
        self._fail("close")

    def _fail(self, where):
        if where in self._fails:
            raise SystemExit("the service is down\nand more")


@pytest.fixture
def run(tmp_path):
    return LoggedRun(tmp_path, {})


def test_rows_arrive_in_order_and_all_are_sent_before_the_end(run):
    logger, said = Noting(), []
    thread = LoggerThread("noting", lambda: logger, run, said.append)
    for step in range(50):
        thread.write({"environment_steps": step})
    thread.close()
    assert [row["environment_steps"] for row in logger.rows] == list(range(50))
    assert logger.closed and logger.run is run and said == []


@pytest.mark.parametrize("where", ["start", "write", "close"])
def test_a_failure_is_reported_once_and_ends_nothing(run, where):
    logger, said = Noting([where]), []
    thread = LoggerThread("noting", lambda: logger, run, said.append)
    for step in range(3):
        thread.write({"environment_steps": step})
    thread.close()
    assert said == ["metrics do not reach noting: SystemExit: the service is down; the run continues without"]
    assert logger.closed and len(logger.rows) == (0 if where == "start" else 3)


def test_a_logger_that_cannot_be_made_is_a_failure_too(run):
    said = []

    def make():
        raise ImportError("No module named 'service'")

    thread = LoggerThread("noting", make, run, said.append)
    thread.close()
    assert said == ["metrics do not reach noting: ImportError: No module named 'service'; the run continues without"]


def test_a_service_that_hangs_blocks_neither_rows_nor_the_end(run, monkeypatch):
    monkeypatch.setattr(logger_thread, "_ROWS", 2)
    hangs, said = threading.Event(), []

    class Hanging(Noting):
        def write(self, row):
            hangs.wait()

    thread = LoggerThread("hanging", Hanging, run, said.append, close_seconds=0.05)
    for step in range(10):
        thread.write({"environment_steps": step})
    thread.close()
    hangs.set()
    assert said == [
        "hanging is too slow: metrics are dropped there; the run continues",
        "hanging has not finished within 0 s: its last metrics may be missing",
    ]
