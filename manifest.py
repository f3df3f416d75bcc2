"""Manifests: sizes and checksums of the files in a directory, by which damage is found before the files are used.

This is a module of the lowest level because the checkpoints of replay and those of `launch` both have one.
"""

import json
import pathlib
import zlib
from collections.abc import Collection
from typing import NamedTuple

from .atomic_files import write_file

MANIFEST = "manifest.json"
_CHUNK_BYTES = 2**20


class Entry(NamedTuple):
    """What a manifest says of a file."""

    size: int
    """Bytes."""
    crc32: int


def write_manifest(directory: pathlib.Path, only: Collection[str] | None = None) -> None:
    """Describes the files of a directory, and of those in it, as they are now.

    Args:
      directory: gets a file `MANIFEST`.
      only: names of the files to describe; None describes all.
    """
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = [str(path.relative_to(directory)) for path in found]
    files = {name: _describe(directory / name)._asdict() for name in names if only is None or name in only}
    write_file(directory / MANIFEST, json.dumps({"files": files}, indent=1))


def read_manifest(path: pathlib.Path) -> dict[str, Entry]:
    """The entries of a manifest by file name.

    Raises:
      ValueError: it is no manifest.
      OSError: it cannot be read.
    """
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): Entry(int(entry["size"]), int(entry["crc32"])) for name, entry in files.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name} cannot be read") from error


def damage(directory: pathlib.Path, sizes_only: bool = False) -> str:
    """What is wrong with a directory that has a manifest, in a few words; empty if all its files are as they were.

    Args:
      directory: with a manifest.
      sizes_only: whether to read none of the files but the manifest.
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
    """What is wrong with a file, in a few words; empty if it is as its entry says."""
    try:
        size = path.stat().st_size
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
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return Entry(size, checksum)
