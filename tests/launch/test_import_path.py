"""The import path of other interpreters leaves out the working directory that the command has appended."""

import sys

from callboard.launch.import_path import library_path


def test_only_the_appended_working_directory_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/libraries", str(tmp_path)])
    assert library_path() == ["/libraries"]
    # First, the user has put it there.
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/libraries"])
    assert library_path() == [str(tmp_path), "/libraries"]
    assert library_path() is not sys.path


def test_a_working_directory_that_was_removed_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["/libraries"])
    assert library_path() == ["/libraries"]
