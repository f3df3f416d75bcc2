"""Manifests: every kind of damage to every file is found and named."""

import json

import pytest

from callboard.files.manifest import MANIFEST, damage, read_manifest, write_manifest


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "one").write_bytes(b"abc" * 1000)
    (tmp_path / "inner" / "two").write_bytes(b"x")
    write_manifest(tmp_path)
    return tmp_path


def test_a_directory_as_it_was_written(directory):
    assert damage(directory) == ""
    (directory / "DONE").touch()
    assert damage(directory) == ""
    assert list(read_manifest(directory / MANIFEST)) == ["inner/two", "one"]


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("one", b"abc", "one has 3 bytes instead of 3,000"),
        ("one", None, "one is missing"),
        ("one", b"abd" * 1000, "one has another content than when it was written"),
        ("inner/two", b"", "inner/two has 0 bytes instead of 1"),
        (MANIFEST, None, "manifest.json is missing"),
        (MANIFEST, b"", "manifest.json cannot be read"),
        (MANIFEST, b"\xff\x00", "manifest.json cannot be read"),
        (MANIFEST, b"[]", "manifest.json cannot be read"),
    ],
)
def test_damage_is_named(directory, name, content, expected):
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content)
    assert damage(directory) == expected


def test_a_part_of_the_files(directory):
    write_manifest(directory, only=["one"])
    (directory / "inner" / "two").unlink()
    assert damage(directory) == ""


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_name_that_leads_out_of_the_directory_is_refused(name, directory):
    (directory / MANIFEST).write_text(json.dumps({"files": {name: {"size": 0, "crc32": 0}}}))
    assert damage(directory) == f"{MANIFEST} cannot be read"
