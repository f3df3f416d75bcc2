"""Temporary files are removed at the end, however it comes."""

import os
import subprocess
import sys
import tempfile
import time

from callboard.launch.temporary_files import removed_afterwards, temporary_files_in

CODE = """
import pathlib, sys, time
from callboard.launch.temporary_files import removed_afterwards
with removed_afterwards(pathlib.Path(sys.argv[1])):
    (pathlib.Path(sys.argv[1]) / "inner").mkdir(parents=True)
    print(flush=True)
    time.sleep(600)
"""


def test_they_are_removed_at_the_end(tmp_path):
    directory = tmp_path / "run" / "tmp"
    with removed_afterwards(directory), temporary_files_in(directory):
        with tempfile.NamedTemporaryFile(delete=False) as file:
            assert file.name.startswith(str(directory))
    assert not directory.exists()
    assert not tempfile.gettempdir().startswith(str(directory))


def test_they_are_removed_where_the_process_is_killed(tmp_path):
    directory = tmp_path / "with 'quotes' and spaces"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", CODE, str(directory)], stdout=subprocess.PIPE, env=environment)
    process.stdout.readline()
    assert (directory / "inner").exists()
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10.0
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not directory.exists()
