"""Modules of the user's own project, as opposed to installed packages, and how they are found.

`my_module:MyAgent` is also looked up in the working directory.  That directory may belong to somebody else, and
installed packages try to import modules that need not exist (NumPy tries `pickle5`): if it were on Python's path,
merely starting the command there would execute a file of that name.  So it is not on the path, but has a finder of its
own, which only answers to settings, to nodes that receive objects of these modules, and to the modules found there
themselves.
"""

import functools
import importlib.machinery
import importlib.metadata
import multiprocessing.spawn
import os
import re
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any

from .object_origins import is_installed, module_file

_LIBRARY = __name__.partition(".")[0]
_LOADERS = (
    "multiprocessing.spawn",
    "gymnasium.vector.utils.misc",
    "launchpad.nodes.python.process_entry",
    *(
        f"{_LIBRARY}.{name}"
        for name in (
            "settings.named_objects",
            "launch.launchers.node_processes.forkserver_process",
            "launch.launchers.node_processes.node_process",
            "launch.launchers.ray.node_actors",
            "launch.launchers.ray.workers",
            "launch.nodes.reports.commands",
        )
    ),
)
"""Modules that import what a setting, or an object that was sent to a node, names."""


_REPOSITORY = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_FOLDERS = (
    "agents benchmarks cli docs environments examples files launch messages networks replay runtime settings studies "
    "tests"
).split()
_MODULES = "__init__ __main__ action_masks callbacks data errors policy_client setup specs transitions".split()
"""Callboard's own entries in its directory: in a clone, the user's modules may lie beside it."""


class WorkingDirectoryFinder:
    """Finds modules in a directory for settings, and for other modules of that directory.

    Args:
      directory: absolute path of the directory.
    """

    def __init__(self, directory: str):
        self.directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or not self.answers(_importer(sys._getframe(1))):
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self.directory], target)

    def answers(self, importer: FrameType | None) -> bool:
        """Returns whether an import is one of a setting, or of a module of the directory."""
        if importer is None:
            return False
        if importer.f_globals.get("__name__") in _LOADERS:
            return True
        file = os.path.abspath(importer.f_code.co_filename)
        return file.startswith(os.path.join(self.directory, "")) and not is_installed(file)


class _SharedNameFinder:
    """Finds what a `WorkingDirectoryFinder` does where Python finds a mere directory of the same name, as for a path.

    Some libraries install a directory `examples` or `scripts` without an `__init__.py`.
    """

    def __init__(self, finder: WorkingDirectoryFinder):
        self._finder = finder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or not self._finder.answers(_importer(sys._getframe(1))):
            return None
        elsewhere = importlib.machinery.PathFinder.find_spec(name, None, target)
        if elsewhere is None or elsewhere.origin is not None or name in sys.builtin_module_names:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, [self._finder.directory], target)
        if found is not None and found.origin is None:
            found.submodule_search_locations = [
                *(found.submodule_search_locations or ()),
                *(elsewhere.submodule_search_locations or ()),
            ]
        return found


def search_working_directory(directory: str | None = None) -> None:
    """Lets settings name modules in a directory, from now on and in this process; by default the working directory."""
    if directory is None:
        try:
            directory = os.getcwd()
        except OSError:  # It was removed.
            return
    if directory not in searched_directories():
        finder = WorkingDirectoryFinder(directory)
        sys.meta_path.insert(0, _SharedNameFinder(finder))
        sys.meta_path.append(finder)
    _search_in_spawned_processes()


@functools.cache
def _search_in_spawned_processes() -> None:
    """Lets processes that `multiprocessing` spawns for a user's module find it, as this process does."""
    prepared = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = lambda name: {**prepared(name), _LIBRARY: _SearchedDirectories()}


class _SearchedDirectories:
    """When it is unpickled, the process searches the directories that the one searched which pickled it."""

    def __reduce__(self) -> Any:
        return _search_all, (searched_directories(),)


def _search_all(directories: Sequence[str]) -> None:
    for directory in directories:
        search_working_directory(directory)


def searched_directories() -> list[str]:
    """Returns the directories of `search_working_directory`, for other processes."""
    return [finder.directory for finder in sys.meta_path if isinstance(finder, WorkingDirectoryFinder)]


def own_directories() -> list[str]:
    """Returns where own modules may be, for another interpreter: these, and what Python searches besides packages."""
    parts = [os.path.abspath(part) for part in sys.path if os.path.isdir(part or os.curdir)]
    return [*searched_directories(), *(part for part in parts if not is_installed(os.path.join(part, "any")))]


def is_own(module: str) -> bool:
    """Returns whether an imported module belongs to the user's project.

    It does if it is not installed, if its installation is editable, or if its distribution depends on Callboard.
    Callboard's own files are not the user's in a clone either, under whatever name they are imported: its tests start
    programs, and its functions remove directories.  What lies beside the metadata of its distribution is installed,
    wherever that is: `pip install --target` and the modules of clusters put libraries into directories of PYTHONPATH.
    """
    return is_own_file(module, module_file(module))


def is_own_file(module: str, file: str | None, installed: Sequence[str] = ()) -> bool:
    """Returns whether a module with this file, which need not be imported yet, belongs to the user's project.

    Args:
      module: name of the module.
      file: its file.
      installed: directories of packages that another interpreter has.
    """
    top = module.partition(".")[0]
    if top == _LIBRARY or top in sys.stdlib_module_names - {"__main__"}:
        return False
    if file is None:
        # A notebook or an interactive session, whose main module has no file.
        return module == "__main__"
    place = os.path.dirname(file)
    for _ in range(module.count(".") + os.path.basename(file).startswith("__init__.")):
        place = os.path.dirname(place)
    if is_installed(file) or file.startswith(tuple(installed)) or _lies_with_its_distribution(top, place):
        return _depends_on_callboard(top)
    return not _is_of_repository(file)


def _is_of_repository(file: str) -> bool:
    """Returns whether a file is Callboard's; not if the working directory is a folder of it, as for its own tests."""
    inside = os.path.relpath(os.path.realpath(file), _REPOSITORY)
    folder, separator, _ = inside.partition(os.sep)
    if not separator:
        return os.path.splitext(folder)[0] in _MODULES
    searched = [os.path.join(os.path.realpath(each), "") for each in searched_directories()]
    own = os.path.join(_REPOSITORY, folder, "")
    inner = any(each.startswith(own) and os.path.realpath(file).startswith(each) for each in searched)
    return folder in _FOLDERS and not inner


def _importer(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the import statement, or of the call that imports."""
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "importlib":
        frame = frame.f_back
    return frame


@functools.cache
def _lies_with_its_distribution(top: str, root: str) -> bool:
    """Returns whether the metadata of an installed distribution with a module lie in a directory."""
    for distribution in importlib.metadata.distributions(path=[root]):
        if distribution.read_text("METADATA") is None:
            continue  # An old kind of editable installation, whose metadata are in the project.
        files = (distribution.read_text("RECORD") or "").splitlines()
        modules = (distribution.read_text("top_level.txt") or "").split()
        if top in modules or any(line.startswith((f"{top}/", f"{top}.")) for line in files):
            return True
    return False


@functools.cache
def _depends_on_callboard(top: str) -> bool:
    for name in importlib.metadata.packages_distributions().get(top, ()):
        if any(re.match(rf"{_LIBRARY}\b(?![.-])", each) for each in importlib.metadata.requires(name) or ()):
            return True
    return False
