"""Which files of tests run in one process, of several that run tests: those that share what takes long to make."""

import functools
import pathlib

from xdist.scheduler import LoadFileScheduling

SHARED = ("on_two_devices", "parsed_modules")
"""A session fixture that imports TensorFlow, and the library's syntax trees."""


@functools.cache
def group_of(file: pathlib.Path) -> str:
    """The name of a group of files that are in one process; its path if it is alone."""
    text = file.read_text() if file.exists() else ""
    return next((name for name in SHARED if name in text), str(file))


class FilesTogether(LoadFileScheduling):
    """Gives each process whole groups of files."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath / super()._split_scope(nodeid))
