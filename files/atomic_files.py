"""Atomic replacement of files and directories.

A writer fills a draft beside the target, syncs it to disk and renames it.  If the process ends before the rename, the
target is unchanged.

Drafts have random names, so threads, processes and containers on one file system never share one.  A writer holds a
lock on its draft, which the kernel releases when the process ends for whatever reason; `remove_drafts` removes drafts
that are no longer locked.

This module is at the lowest level because both `replay` and `launch` replace files.
"""

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator

_DRAFT = "draft-"
_DAMAGED = "damaged-"
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def file_draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the path of an empty file to write, which replaces `path` when the block ends without an error.

    Raises:
      OSError: if the file cannot be written, or `path` is a device, a pipe or a socket, which would be lost; `path` is
        unchanged and the draft is removed.
    """
    check_replaceable(path)
    with _locked_draft(path, directory=False) as draft:
        yield draft
        sync(draft)
        os.replace(draft, path)
        # Where both are links to one file, nothing was renamed.
        draft.unlink(missing_ok=True)
        sync(path.parent)


def check_replaceable(path: pathlib.Path) -> None:
    """Raises `OSError` if a path is of something else than a file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file, so that it cannot be replaced", str(path))


def check_writable(path: pathlib.Path, directory: bool = False) -> None:
    """Raises `OSError` if `file_draft`, or `directory_draft`, could not write to a path; leaves nothing behind."""
    if not directory:
        check_replaceable(path)
    else:
        path = _replaceable_directory(path)
    missing = _missing_parents(path)
    with _locked_draft(path, directory) as draft:
        _remove(draft)
    _remove_empty(missing)


@contextlib.contextmanager
def directory_draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the path of an empty directory to fill, which becomes `path` when the block ends without an error.

    Args:
      path: target, which must not exist or must be an empty directory, whose permissions stay; or a link to such.

    Raises:
      OSError: if the directory cannot be written; `path` is unchanged and the draft is removed.
    """
    path = _replaceable_directory(path)
    with _locked_draft(path, directory=True) as draft:
        # Where it is the same, a file system may not let it be set.
        if path.is_dir() and (mode := path.stat().st_mode) != draft.stat().st_mode:
            draft.chmod(stat.S_IMODE(mode))
        yield draft
        publish_directory(draft, path)


def publish_directory(draft: pathlib.Path, path: pathlib.Path) -> None:
    """Syncs a complete directory to disk and renames it to `path` on the same file system.

    Args:
      draft: the complete directory.
      path: target, which must not exist or must be an empty directory.
    """
    for inner in sorted(draft.rglob("*")):
        sync(inner)
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)


def write_file(path: pathlib.Path, content: str | bytes) -> None:
    """Replaces the content of a file; text is encoded as UTF-8."""
    with file_draft(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_directory(path: pathlib.Path) -> None:
    """Removes a directory, which is never visible half removed.  Does nothing if it does not exist."""
    draft = _draft_name(path)
    try:
        os.rename(path, draft)
    except FileNotFoundError:
        return
    shutil.rmtree(draft, ignore_errors=True)


def set_aside(path: pathlib.Path) -> pathlib.Path | None:
    """Renames a damaged file or directory to `damaged-<name>`.

    Returns:
      The new path, or None if the file no longer exists or cannot be renamed.
    """
    for number in range(1, 1000):
        kept = path.with_name(f"{_DAMAGED}{path.name}" + (f".{number}" if number > 1 else ""))
        if kept.exists():
            continue
        try:
            os.rename(path, kept)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _logger.warning("%s is damaged and could not be renamed: %s", path, error)
            return None
        return kept
    return None


def remove_drafts(directory: pathlib.Path) -> None:
    """Removes the drafts in a directory whose writers no longer run."""
    for draft in directory.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(draft, os.O_RDONLY)
            try:
                # Raises OSError if the writer still runs, or if the file system has no locks; the draft is then kept.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(draft)
            finally:
                os.close(descriptor)


def sync(path: pathlib.Path) -> None:
    """Waits until the content of a file, or the entries of a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Creates a hard link to a file, or a copy if the file system does not support links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _replaceable_directory(path: pathlib.Path) -> pathlib.Path:
    """Returns the directory that a path names, which is another one where it is a link.

    Raises:
      OSError: it is the working directory, in whose place the user's shell would not see another.
    """
    path = pathlib.Path(os.path.realpath(path))
    if path.is_dir() and path.samefile(os.curdir):
        raise OSError(errno.EBUSY, "it is the working directory", str(path))
    return path


@contextlib.contextmanager
def _locked_draft(path: pathlib.Path, directory: bool) -> Iterator[pathlib.Path]:
    missing = _missing_parents(path)
    try:
        draft, descriptor = _make_draft(path, directory)
        try:
            yield draft
        except BaseException:
            _remove(draft)
            raise
        finally:
            os.close(descriptor)
    except BaseException:
        _remove_empty(missing)
        raise


def _missing_parents(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the directories above a path that do not exist, the innermost first."""
    return [parent for parent in path.parents if not os.path.lexists(parent)]


def _remove_empty(directories: Iterable[pathlib.Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def make_as_open(directory: pathlib.Path) -> None:
    """Makes a directory, and those above it, each at most as open to other users as the one that holds it."""
    if not directory.parent.exists():
        make_as_open(directory.parent)
    directory.mkdir(mode=directory.parent.stat().st_mode & 0o777, exist_ok=True)


def _make_draft(path: pathlib.Path, directory: bool) -> tuple[pathlib.Path, int]:
    """Creates a draft; returns it and a file descriptor that holds its lock."""
    while True:
        draft = _draft_name(path)
        if directory:
            make_as_open(draft)
        else:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            descriptor = os.open(draft, os.O_RDONLY)
        except FileNotFoundError:
            continue  # `remove_drafts` removed it before it was locked.
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.stat(draft), os.fstat(descriptor)):
                return draft, descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _draft_name(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{_DRAFT}{secrets.token_hex(4)}-{path.name}")


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
