"""Temporary files are removed at the end, however it comes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from callboard.launch.processes.temporary_files import has_space, removed_afterwards, temporary_files_in
from callboard.runtime.deadlines import wait_until

CODE = """
import pathlib, sys, time
from callboard.launch.processes.temporary_files import removed_afterwards
with removed_afterwards(pathlib.Path(sys.argv[1])):
    (pathlib.Path(sys.argv[1]) / "inner").mkdir(parents=True)
    print(flush=True)
    time.sleep(600)
"""


def test_they_are_removed_at_the_end(tmp_path):
    directory = tmp_path / "tmp"
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
    assert_removed(directory)


def test_processes_with_files_in_it_end_too_where_the_process_is_killed(tmp_path):
    """Those whose command line matches, and no others."""
    directory = tmp_path / "files"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = CODE.replace("(sys.argv[1])):", "(sys.argv[1]), processes='^agent::'):")
    process = subprocess.Popen([sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, env=environment)
    process.stdout.readline()
    sleepers = []
    for name, path in (("agent::A", directory / "log"), ("agent::B", tmp_path / "log"), ("reader", directory / "log")):
        with path.open("w") as file:
            sleepers.append(subprocess.Popen([name, "600"], executable=shutil.which("sleep"), stdout=file))
    try:
        process.kill()
        process.wait()
        assert sleepers[0].wait(timeout=30) == -signal.SIGKILL
        assert_removed(directory)
        assert [sleeper.poll() for sleeper in sleepers[1:]] == [None, None]
    finally:
        process.kill()
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def assert_removed(directory):
    assert wait_until(lambda: not directory.exists(), 10.0, 0.02)


def test_a_full_disk_has_no_space(tmp_path):
    assert has_space(tmp_path) and has_space(tmp_path / "missing")
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        assert not has_space(tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
