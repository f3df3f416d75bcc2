"""An empty run directory, one at a URL, and a list of what is shown to the user."""

import pytest

from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.remote_storage import Storage


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    return directory


@pytest.fixture
def said():
    return []


@pytest.fixture
def bucket(tmp_path):
    return tmp_path / "bucket" / "run"


@pytest.fixture
def storage(bucket):
    return Storage(f"file://{bucket}")
