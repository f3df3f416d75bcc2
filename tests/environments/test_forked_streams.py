"""Streams of forked processes, while another thread of the parent holds the locks of the parent's."""

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from callboard.environments.forked_streams import OutputFile, text_output

FORK = """
import io, logging, os, sys, threading, time
from callboard.environments.forked_streams import allow_forks

class Blocking(io.FileIO):
    def write(self, data):
        inside.set()
        time.sleep(60)

allow_forks()
inside = threading.Event()
sys.stdout = io.TextIOWrapper(io.BufferedWriter(Blocking(1, "w", closefd=False)), line_buffering=True)
logging.basicConfig(stream=sys.stdout)
threading.Thread(target=print, args=("never",), daemon=True).start()
threading.Thread(target=sys.stdin.read, daemon=True).start()
inside.wait()
time.sleep(0.2)
if os.fork() == 0:
    print("printed")
    logging.error("logged")
    sys.stdout.flush()
    sys.stdin.close()
    os._exit(0)
os.wait()
os._exit(0)
"""


@pytest.mark.slow("daily")
def test_a_forked_process_prints_logs_and_closes_its_input_while_the_parent_writes_and_reads():
    program = [sys.executable, "-c", FORK]
    # The input stays open, so that the thread that reads it holds its lock.
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        kill = threading.Timer(60.0, os.killpg, (process.pid, signal.SIGKILL))
        kill.start()
        assert process.stdout.read().decode().splitlines() == ["printed", "ERROR:root:logged"]
        kill.cancel()


def test_handlers_share_the_stream_that_takes_the_place_of_theirs(capfd):
    handler = logging.StreamHandler(text_output(1))
    logging.getLogger("forked").addHandler(handler)
    try:
        logging.getLogger("forked").error("before")
    finally:
        logging.getLogger("forked").removeHandler(handler)
    assert capfd.readouterr().out == "before\n"


@pytest.mark.parametrize("size", [1, 200_000])
def test_output_is_written_whole(tmp_path, size):
    with OutputFile(tmp_path / "output", "w") as file:
        assert file.write(b"x" * size) == size
    assert (tmp_path / "output").stat().st_size == size


def test_what_does_not_fit_on_the_disk_is_dropped():
    with OutputFile(os.open("/dev/full", os.O_WRONLY), "w") as file:
        assert file.write(b"lost") == 4
