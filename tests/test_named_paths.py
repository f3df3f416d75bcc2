"""Paths and URLs that no file can have are refused by one check, wherever Python takes them."""

import pathlib

import pytest

import callboard
from callboard.errors import CallboardError, named_path
from callboard.studies.zoo.zoo_policies import find_policy

WRONG_PATHS = {
    "null": ("a\0b", "has a null character in its name"),
    "null in a URL": ("file:///a\0b", "has a null character in its name"),
    "half a letter": (pathlib.Path("\ud800"), "has part of a letter in its name: rename it"),
    "half a letter in a URL": ("file://\ud800@latest", "has part of a letter in its name: rename it"),
    "long name": ("x" * 256, "is too long for a file"),
    "long path": ("x/" * 2048, "is too long for a file"),
    "bytes": (b"runs", "by a path or a URL, not by a bytes"),
    "number": (5, "by a path or a URL, not by an int"),
    "nothing": (None, "by a path or a URL, not by a NoneType"),
}
TAKE_PATHS = {
    "compare": callboard.compare,
    "evaluate": callboard.evaluate,
    "export": lambda path: callboard.export(path, "export"),
    "export to": lambda path: callboard.export(".", path),
    "load_policy": callboard.load_policy,
    "dataset_info": callboard.dataset_info,
    "dataset_video": lambda path: callboard.dataset_video(path, 0),
    "estimate_value of": lambda path: callboard.estimate_value(path, "data"),
    "find_policy": lambda path: find_policy("x", [path]),
}


@pytest.mark.parametrize("function", TAKE_PATHS)
@pytest.mark.parametrize("wrong", WRONG_PATHS)
def test_a_path_that_can_be_none_is_one_line(function, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, problem = WRONG_PATHS[wrong]
    with pytest.raises(CallboardError, match=problem) as refused:
        TAKE_PATHS[function](path)
    assert "\n" not in str(refused.value)


def test_paths_that_can_be_are_as_they_were():
    for path in ("", ".", "a\udcff", "ü" * 127, "x/" * 2047, "s3://" + "x" * 5000, "größe@latest"):
        assert named_path(path, "run") == path
    assert named_path(pathlib.Path("runs/x"), "run") == "runs/x"
