"""Recognizes a run directory that was renamed, deleted or replaced while its run was running."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CallboardError


class DirectoryIdentity(NamedTuple):
    """The directory that a path named when a run began there."""

    path: pathlib.Path
    inode: int
    """Its number in its file system, which no other directory has while `held_directory` keeps it open."""
    host: str
    """The machine that has looked; another one may see other numbers."""

    @classmethod
    def of(cls, path: pathlib.Path) -> "DirectoryIdentity":
        return cls(path, os.stat(path).st_ino, socket.gethostname())

    def check(self) -> None:
        """Checks that the path still names the directory.

        Raises:
          CallboardError: it names another directory, or none.
        """
        try:
            if self.host != socket.gethostname() or os.stat(self.path).st_ino == self.inode:
                return
            what = "replaced by another one"
        except (FileNotFoundError, NotADirectoryError):
            what = "renamed or deleted"
        except OSError:
            return  # A file system that does not answer is no other directory.
        raise CallboardError(
            f"the run directory {self.path} was {what} while the run was running, so nothing more can be saved; leave "
            "it in its place until the run has ended"
        )


@contextlib.contextmanager
def held_directory(path: pathlib.Path) -> Iterator[None]:
    """Keeps a directory open within the context, so that its inode number is given to no other one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        os.close(descriptor)
