"""Files that share what takes long to make are in one group, and all others alone."""

import pathlib

from files_together import FilesTogether, group_of

TESTS = pathlib.Path(__file__).parent


def test_files_are_grouped_by_what_they_share():
    two = [TESTS / "agents" / "learning" / "test_gradient_step.py", TESTS / "networks" / "test_normalization.py"]
    assert {group_of(file) for file in two} == {"on_two_devices"}
    assert group_of(TESTS / "test_layout.py") == group_of(TESTS / "test_advice.py") == "parsed_modules"
    assert group_of(TESTS / "test_data.py") != group_of(TESTS / "test_errors.py")


def test_tests_are_given_to_processes_by_these_groups(pytestconfig):
    class Scheduler(FilesTogether):
        def __init__(self):
            self.config = pytestconfig

    named = Scheduler()._split_scope("tests/networks/test_normalization.py::test_two[a::b]")
    assert named == "on_two_devices"
