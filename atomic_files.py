"""Files and directories that are written whole or not at all.

Every writer works on a draft beside the target, brings it to the disk and renames it.  Whatever ends the process in
between, the target holds what it held before.

The drafts' names are random, so that threads, processes and containers on one file system never share one.  A writer
holds a lock on its draft, which the kernel releases when the process ends, however it ends: `remove_drafts` removes
those that are no longer locked.

This is a module of the lowest level because replay, which imports nothing of `launch`, replaces files too.
"""

import contextlib
import fcntl
import logging
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator

_DRAFT = "draft-"
_DAMAGED = "damaged-"
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def file_draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives the path of an empty file to write; it replaces `path` when the block ends without an error.

    Raises:
      OSError: it could not be written; `path` is as it was, and the draft is removed.
    """
    with _locked_draft(path, directory=False) as draft:
        yield draft
        sync(draft)
        os.replace(draft, path)
        sync(path.parent)


@contextlib.contextmanager
def directory_draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives the path of an empty directory to fill; it becomes `path` when the block ends without an error.

    Args:
      path: is not there yet, or an empty directory.

    Raises:
      OSError: it could not be written; `path` is as it was, and the draft is removed.
    """
    with _locked_draft(path, directory=True) as draft:
        yield draft
        publish_directory(draft, path)


def publish_directory(draft: pathlib.Path, path: pathlib.Path) -> None:
    """Brings a directory that is complete to the disk, and renames it to `path`, on the same file system.

    Args:
      draft: the directory.
      path: is not there yet, or an empty directory.
    """
    for inner in sorted(draft.rglob("*")):
        sync(inner)
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)


def write_file(path: pathlib.Path, content: str | bytes) -> None:
    """Replaces a file by one with this content; text is UTF-8."""
    with file_draft(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_directory(path: pathlib.Path) -> None:
    """Removes a directory; no part of it is ever seen under its name.  Does nothing if it is not there."""
    draft = _draft_name(path)
    try:
        os.rename(path, draft)
    except FileNotFoundError:
        return
    shutil.rmtree(draft, ignore_errors=True)


def set_aside(path: pathlib.Path) -> pathlib.Path | None:
    """Renames a damaged file or directory to `damaged-<name>`, and gives the new path.

    Returns:
      None if it is gone already, or cannot be renamed here.
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
    """Removes the drafts in a directory whose writers have ended."""
    for draft in directory.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(draft, os.O_RDONLY)
            try:
                # Where there are no locks, nothing says whether the writer has ended: it is left.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(draft)
            finally:
                os.close(descriptor)


def sync(path: pathlib.Path) -> None:
    """Waits until a file, or the list of a directory's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """A further name for a file, or a copy of it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextlib.contextmanager
def _locked_draft(path: pathlib.Path, directory: bool) -> Iterator[pathlib.Path]:
    draft, descriptor = _make_draft(path, directory)
    try:
        yield draft
    except BaseException:
        _remove(draft)
        raise
    finally:
        os.close(descriptor)


def _make_draft(path: pathlib.Path, directory: bool) -> tuple[pathlib.Path, int]:
    """A new draft, and a descriptor that holds its lock."""
    while True:
        draft = _draft_name(path)
        if directory:
            draft.mkdir()
        else:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            descriptor = os.open(draft, os.O_RDONLY)
        except FileNotFoundError:
            continue  # Who removes drafts came in between.
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
