"""The directory of a search: whose files a resumed search reads."""

import os

import pytest

from callboard.errors import CallboardError
from callboard.launch.cli.command import main
from callboard.launch.tuning.records import TuneDirectory


@pytest.fixture
def directory(tmp_path):
    directory = TuneDirectory(tmp_path / "search")
    directory.create({"settings": {}, "search": []})
    (directory.ray / "state").mkdir(parents=True, mode=0o755)
    (directory.ray / "state" / "tuner.pkl").touch(mode=0o644)
    return directory


def test_a_search_of_ones_own_is_trusted(directory):
    directory.check_owner()


@pytest.mark.parametrize("name", [".", "tune.yaml", "ray/state", "ray/state/tuner.pkl"])
def test_a_search_that_others_can_write_is_not_resumed(directory, name, capsys):
    (directory.path / name).chmod(0o777)
    assert main(["tune", "--resume", "--run-dir", str(directory.path)]) == 2
    assert "can be written by others" in capsys.readouterr().err


def test_a_search_of_another_user_is_not_resumed(directory, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CallboardError, match="belongs to another user, .* --trust"):
        directory.check_owner()


@pytest.mark.parametrize(
    "content, message",
    [
        ("[]", "does not hold a search"),
        ("settings: {}\nsampels: 3", "unknown key 'sampels'"),
        ("settings: {}\nsamples: many", "samples must be a whole number, not 'many'"),
        ("settings: {}", "tune.yaml: "),
        ("a: *b", "not valid YAML"),
    ],
)
def test_a_damaged_search_is_refused_in_one_line(directory, content, message, capsys):
    directory.settings.write_text(content)
    assert main(["tune", "--resume", "--run-dir", str(directory.path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
