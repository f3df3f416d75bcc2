"""The log of a node."""

import errno
import logging
import subprocess
import sys

from callboard.launch.launchers.node_processes.log_files import bound_log, logged_to

PROGRAM = """
import os, pathlib, subprocess, sys
from callboard.launch.launchers.node_processes import log_files
log = pathlib.Path(sys.argv[1])
log_files.redirect_output(str(log))
for day in range(20):
    for line in range(100):
        print("from Python", day, line)
        os.write(2, b"from a library\\n")
        if line == 50:
            subprocess.run(["echo", "from a child"], check=True)
    log_files.bound_log(log, limit=2000)
    assert log.stat().st_size <= 2000 and log.with_name(log.name + ".1").stat().st_size < 5000
print("the last line")
"""


def test_a_log_is_bounded_for_all_writers(tmp_path):
    log = tmp_path / "actor-0.log"
    done = subprocess.run([sys.executable, "-c", PROGRAM, log], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == done.stderr == "", log.read_text()
    assert log.read_text() == "the last line\n"
    before = log.with_name("actor-0.log.1").read_text().splitlines()
    assert before[0] == "from Python 19 0" and "from a child" in before and before[-1] == "from a library"
    assert {path.name for path in tmp_path.iterdir()} == {log.name, "actor-0.log.1"}


def test_a_small_log_is_left(tmp_path):
    log = tmp_path / "actor-0.log"
    log.write_text("begins\n")
    bound_log(log)
    bound_log(tmp_path / "no.log")
    assert [path.name for path in tmp_path.iterdir()] == [log.name]


def test_a_log_that_cannot_be_copied_is_cut(tmp_path, monkeypatch):
    log = tmp_path / "actor-0.log"
    log.write_text("x" * 100)

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fail)
    bound_log(log, limit=10)
    assert [path.name for path in tmp_path.iterdir()] == [log.name] and log.stat().st_size == 0


def test_the_messages_of_a_process_are_logged_from_their_level_on(tmp_path):
    log = tmp_path / "run.log"
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with logged_to(log, "info"):
        logging.debug("a detail")
        logging.info("an event")
    with logged_to(log, "debug"):
        logging.debug("another detail")
    logging.error("after the run")
    assert (root.level, list(root.handlers)) == before
    assert [line.partition(" ")[2] for line in log.read_text().splitlines()] == ["an event", "another detail"]


def test_handlers_of_other_libraries_receive_no_more_than_before(tmp_path):
    """Some packages of environments set one up that prints."""
    received = []

    class Recorded(logging.Handler):
        def emit(self, record):
            received.append(record.getMessage())

    handler, root = Recorded(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    try:
        with logged_to(tmp_path / "run.log", "debug"):
            logging.info("an event")
            logging.warning("a fault")
        assert received == ["a fault"] and handler.level == logging.NOTSET
        with logged_to(tmp_path / "run.log", "error"):
            logging.warning("another fault")
        assert received == ["a fault", "another fault"]
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
