"""Files that share what takes long to make are in one group, and all others alone; a crash ends no run."""

import pathlib
import shutil
import subprocess
import sys

from files_together import FilesTogether, group_of

TESTS = pathlib.Path(__file__).parent
CONFTEST = """
from files_together import FilesTogether

def pytest_xdist_make_scheduler(config, log):
    return FilesTogether(config, log)
"""
CRASH = """
import os

def test_before(): pass
def test_crash(): os._exit(1)
def test_after(): pass
"""


def test_files_are_grouped_by_what_they_share():
    two = [TESTS / "agents" / "learning" / "test_gradient_step.py", TESTS / "networks" / "test_normalization.py"]
    assert {group_of(file) for file in two} == {"on_two_devices"}
    assert group_of(TESTS / "test_layout.py") == group_of(TESTS / "test_advice.py") == "parsed_modules"
    assert group_of(TESTS / "test_data.py") != group_of(TESTS / "test_errors.py")


def test_tests_are_given_to_processes_by_these_groups(pytestconfig):
    class Scheduler(FilesTogether):
        def __init__(self):
            self.config = pytestconfig
            self.registered_collections = {None: ["a.py::one", "a.py::two", "b.py::one", "a.py::three", "c.py::one"]}

    named = Scheduler()._split_scope("tests/networks/test_normalization.py::test_two[a::b]")
    assert named == "on_two_devices"
    # A day's tests come before all further ones, also of the same file.
    assert Scheduler()._split_scope("a.py::two") == str(pytestconfig.rootpath / "a.py")
    assert Scheduler()._split_scope("a.py::three") == f"{pytestconfig.rootpath / 'a.py'}, later"


def test_a_run_ends_and_has_run_all_tests_after_some_have_crashed(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    shutil.copy(TESTS / "files_together.py", tmp_path)
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text(CRASH if number in (0, 3, 5) else "def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
    command += ["--dist", "loadfile", "--no-loadscope-reorder"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "3 failed, 9 passed" in done.stdout, done.stdout
