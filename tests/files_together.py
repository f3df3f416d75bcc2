"""Which files of tests run in one process, of several that run tests: those that share what takes long to make."""

import contextlib
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
    """Gives each process whole groups of files, also those that take over from one that crashed.

    A process that is given nothing asks for nothing, and one that has a single test waits for the next: such a process
    would wait for ever.
    """

    def remove_node(self, node):
        """Leaves the tests to others; the one that crashed is not repeated. Its name, or None if all had ended."""
        groups = self.assigned_work[node]
        unfinished = [(name, test) for name, group in groups.items() for test, is_done in group.items() if not is_done]
        for name, test in unfinished[:1]:
            groups[name][test] = True
        ended = [name for name, group in groups.items() if all(group.values())]
        for name in ended:
            del groups[name]
        super().remove_node(node)
        return unfinished[0][1] if unfinished else None

    def _reschedule(self, node):
        is_ready = node in self.registered_collections
        # Tests that cannot be sent to one that has just crashed go to others once that is noticed.
        with contextlib.suppress(OSError):
            while is_ready and not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
                super()._reschedule(node)

    @functools.cached_property
    def _apart(self) -> set[str]:
        """Tests that come after those of other files, although earlier ones are of their own file."""
        files: dict[str, None] = {}
        apart = set()
        for test in next(iter(self.registered_collections.values()), ()):
            file = super()._split_scope(test)
            if file in files and file != next(reversed(files)):
                apart.add(test)
            else:
                files[file] = None
        return apart

    def _split_scope(self, nodeid: str) -> str:
        group = group_of(self.config.rootpath / super()._split_scope(nodeid))
        return f"{group}, later" if nodeid in self._apart else group
