"""Opens and reads files of directories that others may have prepared: regular files of limited size, no links.

A file is opened without following a symbolic link and without waiting, as a named pipe would make it, and only if it is
a regular file.  Its size is looked at before anything is read, and no line of it may be longer than a bound.  JSON is
read as its standard defines it, without `NaN` and `Infinity` and without numbers that no double can hold.

This module is at the lowest level because manifests, checkpoints of replay and files of runs are read through it.
"""

import errno
import io
import json
import math
import os
import pathlib
import stat
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, NoReturn

import numpy as np

_MOST_BYTES = 2**26
_MOST_ARRAYS_BYTES = 2**31
_MOST_LINE_BYTES = 2**20
_LARGEST = 2.0**64
"""Bound on whole numbers in JSON: all bounds of integer dtypes are below."""


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Opens a regular file and returns its descriptor.

    Args:
      path: path of the file; the last part of it must not be a symbolic link.
      flags: as for `os.open`.
      mode: permissions of a file that is created.

    Raises:
      OSError: the file cannot be opened, or it is a link, a directory, a pipe or a device; `strerror` says so.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path, "is a symbolic link") from error
        if error.errno == errno.ENXIO:
            raise _refused(path, "is no regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path, "is no regular file")
    return descriptor


def problem_of_others(directory: pathlib.Path, paths: Iterable[pathlib.Path]) -> str:
    """Returns why others could have written some files; empty if they could not.

    In a directory that only its owner enters, no other user writes to a file, whatever the file's own mode.

    Args:
      directory: the directory that holds all of them.
      paths: files and directories in it; those that do not exist are ignored.
    """
    closed = not os.stat(directory).st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    for path in (directory, *paths):
        if not os.path.lexists(path):
            continue
        status = os.stat(path) if path == directory else os.lstat(path)
        if status.st_uid != os.geteuid():
            return f"{path} belongs to another user"
        is_writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode)
        if is_writable and not closed:
            return f"{path} can be written by others"
    return ""


def read_regular(path: str | os.PathLike[str], most_bytes: int = _MOST_BYTES) -> bytes:
    """Returns the content of a regular file.

    Raises:
      OSError: as `open_regular`, or the file is larger than `most_bytes`.
    """
    with _opened(path, most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # It has grown since.
        raise _too_large(path, most_bytes)
    return content


def regular_lines(path: str | os.PathLike[str], most_bytes: int = _MOST_BYTES) -> Iterator[bytes]:
    """Yields the complete lines of a regular file, without their ends; not the end of a line that is being written.

    Raises:
      OSError: as `read_regular`, or a line is longer than 1 MiB.
    """
    with _opened(path, most_bytes) as file:
        while (line := file.readline(min(_MOST_LINE_BYTES, most_bytes) + 1)).endswith(b"\n"):
            most_bytes -= len(line)
            yield line[:-1]
    if len(line) > most_bytes:
        raise _too_large(path, most_bytes)
    if len(line) > _MOST_LINE_BYTES:
        raise _refused(path, f"has a line of more than {_MOST_LINE_BYTES:,} bytes", errno.EFBIG)


def read_json_lines(path: str | os.PathLike[str], most_bytes: int = _MOST_BYTES) -> Iterator[Any]:
    """Yields the JSON value of each complete line of a regular file.

    Raises:
      OSError: as `regular_lines`.
      ValueError: as `parse_json`; the message begins with the number of the line.
    """
    for number, line in enumerate(regular_lines(path, most_bytes), 1):
        try:
            yield parse_json(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns the arrays in a regular `.npz` file, by name: plain ones, which are not compressed.

    Raises:
      OSError: as `read_regular`.
      ValueError: an array has pickled objects, is compressed, has no bytes, or shares them with another one.
      EOFError, KeyError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error: the file is damaged.
    """
    with _opened(path, _MOST_ARRAYS_BYTES) as opened, zipfile.ZipFile(opened) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("compressed arrays may need more memory than there is")
        if sum(entry.file_size for entry in entries) > os.fstat(opened.fileno()).st_size:
            raise ValueError("its arrays have more bytes than the file")
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    if any(np.size(array) > array.nbytes for array in arrays.values()):
        raise ValueError("an array has elements without bytes")
    return arrays


def write_arrays(path: str | os.PathLike[str], **arrays: Any) -> None:
    """Writes arrays by name, for `read_arrays`.

    Raises:
      OSError: the file cannot be written.
    """
    # The destructor of an archive that cannot write to its file would print a traceback.
    content = io.BytesIO()
    np.savez(content, **arrays)
    with open(path, "wb") as file:
        file.write(content.getbuffer())


def read_json(path: str | os.PathLike[str], most_bytes: int = _MOST_BYTES) -> Any:
    """Returns the JSON value in a regular file.

    Raises:
      OSError: as `read_regular`.
      ValueError: as `parse_json`, or `path` cannot be a path.
    """
    return parse_json(read_regular(path, most_bytes))


def parse_json(text: str | bytes) -> Any:
    """Returns the value that a JSON text, in UTF-8, stands for.

    Raises:
      ValueError: the text is not JSON, nested too deeply, or a number in it is too large for a double.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return _DECODER.decode(decoded)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _opened(path: str | os.PathLike[str], most_bytes: int) -> IO[bytes]:
    file = open(open_regular(path), "rb")
    if os.fstat(file.fileno()).st_size > most_bytes:
        file.close()
        raise _too_large(path, most_bytes)
    return file


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _int(text: str) -> int:
    if len(text) > 15 and abs(float(text)) > _LARGEST:
        raise ValueError("a number is too large")
    return int(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_float, parse_int=_int)
"""One for all texts: `json.loads` makes one for each, which takes longer than a row of metrics."""


def _too_large(path: str | os.PathLike[str], most_bytes: int) -> OSError:
    return _refused(path, f"has more than {most_bytes:,} bytes", errno.EFBIG)


def _refused(path: str | os.PathLike[str], why: str, number: int = errno.EINVAL) -> OSError:
    return OSError(number, f"{pathlib.Path(path).name} {why}", str(path))
