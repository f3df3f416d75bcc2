"""Manifests: sizes and checksums of a directory's files, used to detect damage before the files are read.

This module is at the lowest level because the checkpoints of both `replay` and `launch` have manifests.
"""

import json
import pathlib
import zlib
from collections.abc import Collection
from typing import NamedTuple

from .atomic_files import write_file
from .guarded_files import open_regular, read_json

MANIFEST = "manifest.json"
_CHUNK_BYTES = 2**20


class Entry(NamedTuple):
    """Manifest entry of one file."""

    size: int
    """Size in bytes."""
    crc32: int


def write_manifest(directory: pathlib.Path, only: Collection[str] | None = None) -> None:
    """Writes a manifest of a directory's current files, including those in subdirectories.

    Args:
      directory: directory to describe, in which the file `MANIFEST` is written.
      only: names of the files to include; None for all.
    """
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = [str(path.relative_to(directory)) for path in found]
    files = {name: _describe(directory / name)._asdict() for name in names if only is None or name in only}
    write_file(directory / MANIFEST, json.dumps({"files": files}, indent=1))


def read_manifest(path: pathlib.Path) -> dict[str, Entry]:
    """Reads the entries of a manifest, by file name.

    Raises:
      ValueError: if the file is not a manifest.
      OSError: if the file cannot be read.
    """
    try:
        files = read_json(path)["files"]
        if any(name.startswith("/") or ".." in name.split("/") for name in files):
            raise ValueError("a name leads out of the directory")
        return {name: Entry(int(entry["size"]), int(entry["crc32"])) for name, entry in files.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name} cannot be read") from error


def damage(directory: pathlib.Path, sizes_only: bool = False) -> str:
    """Compares a directory with its manifest.

    Args:
      directory: directory with a manifest.
      sizes_only: whether to compare only sizes, without reading the files.

    Returns:
      A short description of the first difference; empty if there is none.
    """
    try:
        entries = read_manifest(directory / MANIFEST)
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (ValueError, OSError) as error:
        return str(error)
    for name, expected in entries.items():
        wrong = file_damage(directory / name, expected, sizes_only)
        if wrong:
            return f"{name} {wrong}"
    return ""


def file_damage(path: pathlib.Path, expected: Entry, size_only: bool = False) -> str:
    """Compares a file with its manifest entry; returns a short description of the damage, empty if there is none."""
    try:
        size = path.lstat().st_size
        if size != expected.size:
            return f"has {size:,} bytes instead of {expected.size:,}"
        if not size_only and _describe(path) != expected:
            return "has another content than when it was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return ""


def _describe(path: pathlib.Path) -> Entry:
    size = checksum = 0
    with open(open_regular(path), "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return Entry(size, checksum)
