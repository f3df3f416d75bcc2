"""An empty run directory, and a list of what is shown to the user."""

import pytest

from callboard.launch.run_directory.layout import RunDirectory


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    return directory


@pytest.fixture
def said():
    return []
